//! Code: what modules and libraries take, and where their variables are.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Gpu, Kind, MIB};
use support::{Cuda, cu, on};

#[test]
fn modules_take_what_their_image_says() {
    on(
        "modules_take_what_their_image_says",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let text = c"kernel step 1000\nglobal table 8388608\ncode 4194304\n";
            let mut module = 0usize;
            assert_eq!(
                cu!(cuda, cuModuleLoadData(&raw mut module, text.as_ptr())),
                0
            );
            // Code is left for later.
            assert_eq!(cuda.mine(Kind::Module), 8 * MIB);
            let mut function = 0usize;
            assert_eq!(
                cu!(
                    cuda,
                    cuModuleGetFunction(&raw mut function, module, c"step".as_ptr())
                ),
                0
            );
            assert_eq!(cuda.mine(Kind::Module), 12 * MIB);
            let (mut address, mut bytes) = (0u64, 0usize);
            let code = cu!(
                cuda,
                cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module, c"table".as_ptr())
            );
            assert_eq!((code, bytes), (0, 8 << 20));
            assert_eq!(cu!(cuda, cuMemFree_v2(address)), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cu!(cuda, cuModuleUnload(module)), 0);
            assert_eq!(cuda.mine(Kind::Module), 0);
            assert_eq!(
                cu!(
                    cuda,
                    cuModuleLoadData(&raw mut module, c"nonsense".as_ptr())
                ),
                CUDA_ERROR_INVALID_IMAGE
            );
            assert_eq!(
                cu!(cuda, cuModuleLoad(&raw mut module, c"/nowhere".as_ptr())),
                CUDA_ERROR_FILE_NOT_FOUND
            );
            assert_eq!(
                cu!(
                    cuda,
                    cuModuleLoadData(&raw mut module, b"\x7fELF\x02".as_ptr())
                ),
                0
            );
            assert_eq!(
                cu!(
                    cuda,
                    cuModuleGetFunction(&raw mut function, module, c"any_name".as_ptr())
                ),
                0
            );
            assert_eq!(cuda.launch(function, 0), 0);
        },
    );
}

#[test]
fn libraries_take_memory_where_they_are_used() {
    on(
        "libraries_take_memory_where_they_are_used",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let text = c"kernel step 1000\ncode 4194304\n";
            let (mut library, mut kernel, mut function) = (0usize, 0usize, 0usize);
            let code = cu!(
                cuda,
                cuLibraryLoadData(
                    &raw mut library,
                    text.as_ptr(),
                    0usize,
                    0usize,
                    0u32,
                    0usize,
                    0usize,
                    0u32
                )
            );
            assert_eq!(code, 0);
            assert_eq!(
                cu!(
                    cuda,
                    cuLibraryGetKernel(&raw mut kernel, library, c"step".as_ptr())
                ),
                0
            );
            assert_eq!(cuda.mine(Kind::Module), 0);
            assert_eq!(cu!(cuda, cuKernelGetFunction(&raw mut function, kernel)), 0);
            assert_eq!(cuda.mine(Kind::Module), 4 * MIB);
            assert_eq!(cuda.launch(kernel, 0), 0);
            assert_eq!(cu!(cuda, cuLibraryUnload(library)), 0);
            assert_eq!(cuda.mine(Kind::Module), 0);
            assert_eq!(cuda.launch(kernel, 0), CUDA_ERROR_INVALID_HANDLE);
        },
    );
}

#[test]
fn small_modules_fit_into_the_context() {
    on(
        "small_modules_fit_into_the_context",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let kernel = cuda.kernel("kernel step 5\ncode 600000", "step");
            assert_eq!(cuda.launch(kernel, 0), 0);
            assert_eq!(cuda.mine(Kind::Module), 0);
            cuda.kernel("kernel step 5\ncode 600000", "step");
            assert_eq!(cuda.mine(Kind::Module), 2 * MIB);
        },
    );
}

fn library(cuda: &Cuda, text: &std::ffi::CStr) -> usize {
    let mut library = 0usize;
    let code = cu!(
        cuda,
        cuLibraryLoadData(
            &raw mut library,
            text.as_ptr(),
            0usize,
            0usize,
            0u32,
            0usize,
            0usize,
            0u32
        )
    );
    assert_eq!(code, 0);
    library
}

#[test]
fn a_library_is_a_module_in_each_context() {
    on(
        "a_library_is_a_module_in_each_context",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let library = library(&cuda, c"kernel step 5\nglobal table 4194304");
            assert_eq!(cuda.mine(Kind::Module), 0);
            let (mut address, mut bytes) = (0u64, 0usize);
            let mut find = |name: &std::ffi::CStr| {
                cu!(
                    cuda,
                    cuLibraryGetGlobal(&raw mut address, &raw mut bytes, library, name.as_ptr())
                )
            };
            assert_eq!(find(c"nothing"), CUDA_ERROR_NOT_FOUND);
            assert_eq!(find(c"table"), 0);
            assert_eq!((cuda.mine(Kind::Module), bytes), (4 * MIB, 4 << 20));
            let (mut module, mut function) = (0usize, 0usize);
            assert_eq!(cu!(cuda, cuLibraryGetModule(&raw mut module, library)), 0);
            let code = cu!(
                cuda,
                cuModuleGetFunction(&raw mut function, module, c"step".as_ptr())
            );
            assert_eq!(code, 0);
            assert_eq!(cu!(cuda, cuFuncLoad(function)), 0);
            assert_eq!(cuda.launch(function, 0), 0);
            // It is the library's.
            assert_eq!(cu!(cuda, cuModuleUnload(module)), CUDA_ERROR_INVALID_HANDLE);
            let mut other = 0usize;
            assert_eq!(cu!(cuda, cuCtxCreate_v2(&raw mut other, 0u32, 0i32)), 0);
            assert_eq!(cu!(cuda, cuLibraryGetModule(&raw mut module, library)), 0);
            assert_eq!(cuda.mine(Kind::Module), 8 * MIB);
            assert_eq!(cu!(cuda, cuCtxDestroy_v2(other)), 0);
            assert_eq!(cuda.mine(Kind::Module), 4 * MIB);
            assert_eq!(cu!(cuda, cuLibraryUnload(library)), 0);
            assert_eq!(cuda.mine(Kind::Module), 0);
        },
    );
}

/// The mappings that a real driver's managed memory has.
fn managed_mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let lines = maps.lines().filter(|line| {
        let start = line.split('-').next().unwrap_or_default();
        line.contains("nvidia-uvm") && line.contains(&format!("s {start} "))
    });
    lines.count()
}

/// As on an H200: what is small shares a piece, allocated or not, and the driver knows it without a context.
#[test]
fn managed_variables_are_mapped_as_long_as_their_code_is_loaded() {
    on(
        "managed_variables_are_mapped_as_long_as_their_code_is_loaded",
        &[Gpu::l40s(0)],
        |cuda| {
            assert_eq!(cu!(cuda, cuInit(0u32)), 0);
            let early = library(&cuda, c"managed large 3145728\nmanaged small 4\n");
            assert_eq!((managed_mappings(), cuda.mine(Kind::Managed)), (2, 6 * MIB));
            let (mut address, mut bytes, mut is_managed) = (0u64, 0usize, 0u32);
            let code = cu!(
                cuda,
                cuLibraryGetManaged(&raw mut address, &raw mut bytes, early, c"large".as_ptr())
            );
            assert_eq!((code, bytes), (0, 3 << 20));
            let mut ask = |attribute: u32, address: u64| {
                let place = &raw mut is_managed;
                let code = cu!(cuda, cuPointerGetAttribute(place, attribute, address));
                (code, is_managed)
            };
            assert_eq!(ask(CU_POINTER_ATTRIBUTE_IS_MANAGED, address), (0, 1));
            cuda.start();
            let (mut module, mut small) = (0usize, 0u64);
            let text = c"managed small 1000000\n";
            assert_eq!(
                cu!(cuda, cuModuleLoadData(&raw mut module, text.as_ptr())),
                0
            );
            assert_eq!(
                cu!(cuda, cuMemAllocManaged(&raw mut small, 4096usize, 1u32)),
                0
            );
            assert_eq!((managed_mappings(), cuda.mine(Kind::Managed)), (2, 6 * MIB));
            assert_eq!(cu!(cuda, cuLibraryUnload(early)), 0);
            assert_eq!(cu!(cuda, cuModuleUnload(module)), 0);
            assert_eq!((managed_mappings(), cuda.mine(Kind::Managed)), (1, 2 * MIB));
            let code = ask(CU_POINTER_ATTRIBUTE_IS_MANAGED, address).0;
            assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cu!(cuda, cuMemFree_v2(small)), 0);
            assert_eq!((managed_mappings(), cuda.mine(Kind::Managed)), (0, 0));
        },
    );
}
