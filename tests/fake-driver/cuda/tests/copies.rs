//! Copies and fills: what they leave, and how long the device takes.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::Gpu;
use support::{Cuda, cu, driven, on};

/// Bytes copied or filled in a microsecond.
const BYTES: usize = 8192;

fn read<T: Copy + Default, const N: usize>(cuda: &Cuda, from: u64) -> [T; N] {
    let mut back = [T::default(); N];
    let code = cu!(
        cuda,
        cuMemcpyDtoH_v2(back.as_mut_ptr(), from, size_of_val(&back))
    );
    assert_eq!(code, 0);
    back
}

#[test]
fn fills_leave_each_element_and_no_more() {
    on(
        "fills_leave_each_element_and_no_more",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let at = cuda.allocate(64).unwrap();
            assert_eq!(cu!(cuda, cuMemsetD32_v2(at, 0u32, 16usize)), 0);
            assert_eq!(cu!(cuda, cuMemsetD16_v2(at, 0x0102u16, 3usize)), 0);
            assert_eq!(read::<u16, 4>(&cuda, at), [0x0102, 0x0102, 0x0102, 0]);
            // Two rows of one element, of four in each.
            let code = cu!(
                cuda,
                cuMemsetD2D32_v2(at + 16, 16usize, 7u32, 1usize, 2usize)
            );
            assert_eq!(code, 0);
            assert_eq!(read::<u32, 8>(&cuda, at + 16), [7, 0, 0, 0, 7, 0, 0, 0]);
            let beyond = cu!(cuda, cuMemsetD2D32_v2(at, 64usize, 7u32, 1usize, 2usize));
            assert_eq!(beyond, CUDA_ERROR_INVALID_VALUE);
        },
    );
}

#[test]
fn rectangles_are_copied_row_by_row() {
    on(
        "rectangles_are_copied_row_by_row",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let at = cuda.allocate(32).unwrap();
            assert_eq!(cu!(cuda, cuMemsetD8_v2(at, 0u8, 32usize)), 0);
            let host: [u8; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];
            // The lower right four of nine, to the second row of rows of eight.
            let mut asked = CUDA_MEMCPY2D {
                srcXInBytes: 1,
                srcY: 1,
                srcMemoryType: CU_MEMORYTYPE_HOST,
                srcHost: host.as_ptr().cast(),
                srcDevice: 0,
                srcArray: std::ptr::null_mut(),
                srcPitch: 3,
                dstXInBytes: 0,
                dstY: 1,
                dstMemoryType: CU_MEMORYTYPE_DEVICE,
                dstHost: std::ptr::null_mut(),
                dstDevice: at,
                dstArray: std::ptr::null_mut(),
                dstPitch: 8,
                WidthInBytes: 2,
                Height: 2,
            };
            assert_eq!(cu!(cuda, cuMemcpy2D_v2(&raw const asked)), 0);
            let back: [u8; 24] = read(&cuda, at);
            assert_eq!(
                (&back[8..11], &back[16..19]),
                (&[5, 6, 0][..], &[8, 9, 0][..])
            );
            asked.dstY = 3;
            let beyond = cu!(cuda, cuMemcpy2D_v2(&raw const asked));
            assert_eq!(beyond, CUDA_ERROR_INVALID_VALUE);
        },
    );
}

#[test]
fn the_device_takes_time_for_its_own_memory() {
    driven("the_device_takes_time_for_its_own_memory", |cuda| {
        cuda.start();
        let (stream, bytes) = (cuda.stream(), 100 * BYTES);
        let (one, two) = (cuda.allocate(bytes).unwrap(), cuda.allocate(bytes).unwrap());
        let host = vec![3u8; bytes];
        let from = host.as_ptr();
        let codes = [
            cu!(cuda, cuMemsetD8Async(one, 1u8, bytes, stream)),
            cu!(cuda, cuMemcpyDtoDAsync_v2(two, one, bytes, stream)),
        ];
        assert_eq!(codes, [0; 2]);
        assert_eq!(cuda.node.busy_until(0), 100_000);
        assert_eq!(cu!(cuda, cuStreamQuery(stream)), CUDA_ERROR_NOT_READY);
        cuda.node.advance(Duration::from_micros(100)).unwrap();
        assert_eq!(cu!(cuda, cuStreamQuery(stream)), CUDA_ERROR_NOT_READY);
        assert_eq!(cuda.node.busy_until(0), 200_000);
        cuda.node.advance(Duration::from_micros(100)).unwrap();
        assert_eq!(cu!(cuda, cuStreamQuery(stream)), 0);
        assert_eq!(read::<u8, 1>(&cuda, two), [1]);
        // The host's goes by another way.
        assert_eq!(cu!(cuda, cuMemcpyHtoDAsync_v2(two, from, bytes, stream)), 0);
        assert_eq!(cu!(cuda, cuStreamQuery(stream)), 0);
        assert_eq!(cuda.node.busy_until(0), 200_000);
        assert_eq!(read::<u8, 1>(&cuda, two), [3]);
    });
}

static CALLED: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn called(_stream: CUstream, status: CUresult, data: *mut std::ffi::c_void) {
    CALLED.store(data as u32 + status, Ordering::SeqCst);
}

#[test]
fn a_batch_waits_and_writes_and_then_the_program_is_called() {
    on(
        "a_batch_waits_and_writes_and_then_the_program_is_called",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let stream = cuda.stream();
            let words = [const { AtomicU32::new(0) }; 4];
            let at = words.as_ptr() as u64;
            // Until the first two are 5 as one, then the third becomes 9.
            let mut list = [[4, at, 5, 1, 0, 0], [2, at + 8, 9, 0, 0, 0]];
            let codes = [
                cu!(
                    cuda,
                    cuStreamBatchMemOp_v2(stream, 2u32, list.as_mut_ptr(), 0u32)
                ),
                cu!(
                    cuda,
                    cuStreamAddCallback(
                        stream,
                        called as unsafe extern "C" fn(CUstream, CUresult, *mut std::ffi::c_void),
                        4usize,
                        0u32
                    )
                ),
            ];
            assert_eq!(codes, [0; 2]);
            assert_eq!(cu!(cuda, cuStreamQuery(stream)), CUDA_ERROR_NOT_READY);
            words[0].store(5, Ordering::SeqCst);
            assert_eq!(cu!(cuda, cuStreamSynchronize(stream)), 0);
            assert_eq!(words[2].load(Ordering::SeqCst), 9);
            assert_eq!(CALLED.load(Ordering::SeqCst), 4);
        },
    );
}
