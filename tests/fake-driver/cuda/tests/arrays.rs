//! Arrays: what they take by their format and shape.
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
fn arrays_are_sized_by_their_format() {
    on(
        "arrays_are_sized_by_their_format",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let mut array = 0usize;
            let mut shape = CUDA_ARRAY_DESCRIPTOR {
                Width: 1024,
                Height: 1024,
                Format: CU_AD_FORMAT_UNSIGNED_INT8,
                NumChannels: 4,
            };
            assert_eq!(
                cu!(cuda, cuArrayCreate_v2(&raw mut array, &raw const shape)),
                0
            );
            assert_eq!(cuda.mine(Kind::Array), 4 * MIB);
            assert_eq!(cu!(cuda, cuArrayDestroy(array)), 0);
            assert_eq!(
                cu!(cuda, cuArrayDestroy(array)),
                CUDA_ERROR_CONTEXT_IS_DESTROYED
            );
            assert_eq!(cuda.mine(Kind::Array), 0);
            shape.NumChannels = 3;
            assert_eq!(
                cu!(cuda, cuArrayCreate_v2(&raw mut array, &raw const shape)),
                CUDA_ERROR_INVALID_VALUE
            );

            let mut solid = CUDA_ARRAY3D_DESCRIPTOR {
                Width: 256,
                Height: 256,
                Depth: 256,
                Format: CU_AD_FORMAT_FLOAT,
                NumChannels: 1,
                Flags: 0,
            };
            assert_eq!(
                cu!(cuda, cuArray3DCreate_v2(&raw mut array, &raw const solid)),
                0
            );
            assert_eq!(cuda.mine(Kind::Array), 64 * MIB);
            assert_eq!(cu!(cuda, cuArrayDestroy(array)), 0);

            // Seen on an H200: 341.3 MiB in all its levels, in pieces of 2 MiB.
            solid = CUDA_ARRAY3D_DESCRIPTOR {
                Width: 4096,
                Height: 4096,
                Depth: 0,
                NumChannels: 4,
                ..solid
            };
            assert_eq!(
                cu!(
                    cuda,
                    cuMipmappedArrayCreate(&raw mut array, &raw const solid, 13u32)
                ),
                0
            );
            assert_eq!(cuda.mine(Kind::Array), 342 * MIB);
            let mut level = 0usize;
            assert_eq!(
                cu!(cuda, cuMipmappedArrayGetLevel(&raw mut level, array, 12u32)),
                0
            );
            assert_eq!(
                cu!(cuda, cuMipmappedArrayGetLevel(&raw mut level, array, 13u32)),
                CUDA_ERROR_INVALID_VALUE
            );
            assert_eq!(cu!(cuda, cuMipmappedArrayDestroy(array)), 0);
            assert_eq!(cuda.mine(Kind::Array), 0);
        },
    );
}

/// A shape whose elements have `bytes` bytes.
fn shape([width, height, depth]: [usize; 3], bytes: u32, flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    let (format, channels) = match bytes {
        1 => (CU_AD_FORMAT_UNSIGNED_INT8, 1),
        2 => (CU_AD_FORMAT_UNSIGNED_INT16, 1),
        bytes => (CU_AD_FORMAT_FLOAT, bytes / 4),
    };
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: height,
        Depth: depth,
        Format: format,
        NumChannels: channels,
        Flags: flags,
    }
}

fn create(cuda: &Cuda, shape: &CUDA_ARRAY3D_DESCRIPTOR) -> usize {
    let mut array = 0usize;
    let code = cu!(
        cuda,
        cuArray3DCreate_v2(&raw mut array, std::ptr::from_ref(shape))
    );
    assert_eq!(code, 0);
    array
}

#[test]
fn arrays_are_padded_as_on_an_h200() {
    on("arrays_are_padded_as_on_an_h200", &[Gpu::h200(0)], |cuda| {
        cuda.start();
        let (layered, cubes) = (CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_CUBEMAP);
        for (size, bytes, flags, mib) in [
            ([64, 0, 0], 4, 0, 2),
            ([1024, 1024, 0], 4, 0, 4),
            ([1024, 1025, 0], 4, 0, 6),
            ([1920, 1080, 0], 4, 0, 10),
            ([1, 60_000, 0], 4, 0, 4),
            ([30_000, 1, 0], 16, 0, 4),
            ([5001, 3333, 0], 2, 0, 34),
            ([700, 700, 0], 4, 0, 4),
            ([100, 100, 100], 4, 0, 6),
            ([257, 257, 257], 4, 0, 76),
            ([1000, 1000, 7], 4, layered, 28),
            ([300, 300, 12], 16, layered | cubes, 22),
            ([4096, 4096, 0], 16, CUDA_ARRAY3D_SPARSE, 0),
        ] {
            let array = create(&cuda, &shape(size, bytes, flags));
            assert_eq!(cuda.mine(Kind::Array), mib * MIB, "{size:?}");
            assert_eq!(cu!(cuda, cuArrayDestroy(array)), 0);
        }
        // Small ones share pieces, but with none but arrays.
        cuda.allocate(1).unwrap();
        for _ in 0..1000 {
            create(&cuda, &shape([64, 64, 0], 4, 0));
        }
        assert_eq!(cuda.mine(Kind::Array), 16 * MIB);
    });
}

#[test]
fn an_array_without_memory_says_what_it_would_need() {
    on(
        "an_array_without_memory_says_what_it_would_need",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let mut needs = CUDA_ARRAY_MEMORY_REQUIREMENTS {
                size: 0,
                alignment: 0,
                reserved: [0; 4],
            };
            // Each as an H200 says.
            let deferred = CUDA_ARRAY3D_DEFERRED_MAPPING;
            for (size, bytes, wanted) in [
                ([5000, 5000, 0], 4, 102_563_840),
                ([257, 257, 257], 4, 78_184_448),
                ([64, 64, 0], 4, 65_536),
            ] {
                let asked = shape(size, bytes, deferred);
                let array = create(&cuda, &asked);
                let code = cu!(
                    cuda,
                    cuArrayGetMemoryRequirements(&raw mut needs, array, 0i32)
                );
                assert_eq!((code, needs.size, needs.alignment), (0, wanted, 65_536));
                let mut told = shape([0; 3], 1, 0);
                assert_eq!(
                    cu!(cuda, cuArray3DGetDescriptor_v2(&raw mut told, array)),
                    0
                );
                assert_eq!([told.Width, told.Height, told.Depth], size);
            }
            assert_eq!(cuda.mine(Kind::Array), 0);
            let (mut mipmaps, asked) = (0usize, shape([1024, 1024, 0], 4, deferred));
            let code = cu!(
                cuda,
                cuMipmappedArrayCreate(&raw mut mipmaps, &raw const asked, 7u32)
            );
            assert_eq!(code, 0);
            let code = cu!(
                cuda,
                cuMipmappedArrayGetMemoryRequirements(&raw mut needs, mipmaps, 0i32)
            );
            assert_eq!((code, needs.size), (0, 5_636_096));
            let array = create(&cuda, &shape([64, 64, 0], 4, 0));
            assert_eq!(
                cu!(
                    cuda,
                    cuArrayGetMemoryRequirements(&raw mut needs, array, 0i32)
                ),
                CUDA_ERROR_INVALID_VALUE
            );
        },
    );
}
