//! The functions that programs call in the place of libcuda's.

use core::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

use super::table::export;
use super::{init, proc_address};
use crate::driver::cuda::{CUDA, cuda_functions, real};
use crate::driver::stream::DEFAULT;
use crate::driver::table::{Family, c_name};
use crate::launch::copies;
use crate::launch::kernels;
use crate::ledger::{self, EXPORTED, Kind};
use crate::memory::pools::NO_POOL;
use crate::memory::{
    alloc, arrays, contexts, export, graphs, ipc, managed, modules, pools, stacks, streams, vmm,
};
use crate::views::memory;

cuda_functions!(export);
