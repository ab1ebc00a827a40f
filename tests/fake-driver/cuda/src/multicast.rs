//! Memory on several devices at once, which these have not, like a single H200.

use softmig_driver_sys::cuda::*;

use crate::In;
use crate::Out;
use crate::entry::locked;
use crate::export::exports;

exports! {
    static SYMBOLS;

    /// Makes what memory of several devices can be bound to.
    fn cuMulticastCreate [cuMulticastCreate 12010] (
        _out: Out<CUmemGenericAllocationHandle>, _properties: In<CUmulticastObjectProp>
    ) => locked(|_| Err(CUDA_ERROR_NOT_SUPPORTED));

    /// Binds memory to it.
    fn cuMulticastBindMem [cuMulticastBindMem 12010] (
        _object: CUmemGenericAllocationHandle, _at: usize, _memory: CUmemGenericAllocationHandle, _offset: usize,
        _bytes: usize, _flags: u64
    ) => locked(|_| Err(CUDA_ERROR_NOT_SUPPORTED));

    /// Binds memory of a device to it.
    fn cuMulticastBindMem_v2 [cuMulticastBindMem 13010] (
        _object: CUmemGenericAllocationHandle, _device: CUdevice, _at: usize, _memory: CUmemGenericAllocationHandle,
        _offset: usize, _bytes: usize, _flags: u64
    ) => locked(|_| Err(CUDA_ERROR_NOT_SUPPORTED));

    /// Binds mapped memory to it.
    fn cuMulticastBindAddr [cuMulticastBindAddr 12010] (
        _object: CUmemGenericAllocationHandle, _at: usize, _memory: CUdeviceptr, _bytes: usize, _flags: u64
    ) => locked(|_| Err(CUDA_ERROR_NOT_SUPPORTED));

    /// Binds mapped memory of a device to it.
    fn cuMulticastBindAddr_v2 [cuMulticastBindAddr 13010] (
        _object: CUmemGenericAllocationHandle, _device: CUdevice, _at: usize, _memory: CUdeviceptr, _bytes: usize,
        _flags: u64
    ) => locked(|_| Err(CUDA_ERROR_NOT_SUPPORTED));

    /// Takes it away again.
    fn cuMulticastUnbind [cuMulticastUnbind 12010] (
        _object: CUmemGenericAllocationHandle, _device: CUdevice, _at: usize, _bytes: usize
    ) => locked(|_| Err(CUDA_ERROR_NOT_SUPPORTED));
}
