//! Which devices a program has, and what it is told of them.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Description, Gpu, PLACE_VARIABLE};
use support::{Cuda, cu, described, on};

/// The names of the devices, or the code of cuInit.
fn devices(cuda: &Cuda) -> Result<Vec<String>, u32> {
    match cu!(cuda, cuInit(0u32)) {
        0 => {}
        code => return Err(code),
    }
    let mut count = 0i32;
    assert_eq!(cu!(cuda, cuDeviceGetCount(&raw mut count)), 0);
    Ok((0..count)
        .map(|device| {
            let mut bus = [0u8; 32];
            assert_eq!(
                cu!(cuda, cuDeviceGetPCIBusId(bus.as_mut_ptr(), 32i32, device)),
                0
            );
            let mut name = [0u8; 64];
            assert_eq!(
                cu!(cuda, cuDeviceGetName(name.as_mut_ptr(), 64i32, device)),
                0
            );
            let text = |bytes: &[u8]| {
                String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap()).into_owned()
            };
            format!("{} {}", text(&bus).get(5..7).unwrap(), text(&name))
        })
        .collect())
}

/// Checks what a program with this CUDA_VISIBLE_DEVICES has of four L40S.
fn with_variable(test: &str, variable: &str, expected: Result<&[&str], u32>) {
    let name = format!("{test}_{variable:?}");
    let description = Description::new(&Gpu::several(4, Gpu::l40s));
    // One process for each value; the test's name stays what libtest knows.
    if support::is_part()
        && std::env::var_os("CUDA_VISIBLE_DEVICES").is_some_and(|set| set != *variable)
    {
        return;
    }
    described(
        test,
        description,
        |command| {
            command.env("CUDA_VISIBLE_DEVICES", variable);
        },
        |cuda| {
            let expected = expected.map(|buses| {
                buses
                    .iter()
                    .map(|bus| format!("{bus} NVIDIA L40S"))
                    .collect()
            });
            assert_eq!(devices(&cuda), expected, "{name}");
        },
    );
}

#[test]
fn the_variable_chooses_and_orders() {
    let none = Err(CUDA_ERROR_NO_DEVICE);
    for (variable, expected) in [
        ("0", Ok(&["21"][..])),
        ("2,0", Ok(&["23", "21"][..])),
        ("0,7", Ok(&["21"])),
        ("7,0", none),
        ("", none),
        ("-1", none),
        ("0,0", Err(CUDA_ERROR_INVALID_DEVICE)),
        (" 1", Ok(&["22"])),
        ("1 ", Ok(&["22"])),
        ("1x", Ok(&["22"])),
        ("+1", Ok(&["22"])),
        ("01", Ok(&["22"])),
        ("a1", none),
        ("GPU-", none),
        ("GPU-26b910de-0000-4000-8000-000000000003", Ok(&["24"])),
        // Clear in no place before the last.
        ("GPU-26b910de", none),
        ("NoDevFiles", none),
        ("1;2", Ok(&["22"])),
    ] {
        with_variable("the_variable_chooses_and_orders", variable, expected);
    }
}

#[test]
fn fenced_devices_are_not_there() {
    on(
        "fenced_devices_are_not_there",
        &Gpu::several(4, Gpu::l40s),
        |cuda| {
            let dir = std::env::var_os(PLACE_VARIABLE).unwrap();
            let dir = std::path::Path::new(&dir).parent().unwrap().to_path_buf();
            for minor in [0, 2] {
                std::fs::remove_file(dir.join(format!("nvidia{minor}"))).unwrap();
            }
            assert_eq!(
                devices(&cuda),
                Ok(vec!["22 NVIDIA L40S".into(), "24 NVIDIA L40S".into()])
            );
            let mut device = 0i32;
            assert_eq!(
                cu!(cuda, cuDeviceGet(&raw mut device, 2i32)),
                CUDA_ERROR_INVALID_DEVICE
            );
            // Device 0 is the node's second.
            cuda.start();
            let usage = cuda.node.usage().unwrap();
            assert_eq!((usage[0].used, usage[1].used), (0, 370 << 20));
        },
    );
}

#[test]
fn a_program_has_one_part_of_a_divided_gpu() {
    let gpus = [Gpu::a100_divided(0, &["3g.20gb", "1g.5gb"])];
    on("a_program_has_one_part_of_a_divided_gpu", &gpus, |cuda| {
        assert_eq!(
            devices(&cuda).unwrap(),
            ["21 NVIDIA A100-SXM4-40GB MIG 3g.20gb"]
        );
    });
}

#[test]
fn whole_gpus_come_before_parts() {
    let gpus = [Gpu::a100_divided(0, &["1g.5gb"]), Gpu::a100(1)];
    on("whole_gpus_come_before_parts", &gpus, |cuda| {
        assert_eq!(devices(&cuda).unwrap(), ["22 NVIDIA A100-SXM4-40GB"]);
    });
}

#[test]
fn a_part_is_chosen_by_its_uuid() {
    let gpu = Gpu::a100_divided(0, &["3g.20gb", "1g.5gb"]);
    let wanted = gpu.instances()[1].clone();
    described(
        "a_part_is_chosen_by_its_uuid",
        Description::new(&[gpu]),
        |command| {
            command.env("CUDA_VISIBLE_DEVICES", &wanted.uuid);
        },
        |cuda| {
            cuda.start();
            let (mut bytes, mut count) = (0usize, 0i32);
            assert_eq!(cu!(cuda, cuDeviceTotalMem_v2(&raw mut bytes, 0i32)), 0);
            assert_eq!(bytes as u64, wanted.memory);
            let code = cu!(
                cuda,
                cuDeviceGetAttribute(
                    &raw mut count,
                    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                    0i32
                )
            );
            assert_eq!((code, count), (0, 14));
            assert_eq!(cuda.allocate(5 << 30), Err(CUDA_ERROR_OUT_OF_MEMORY));
            let usage = cuda.node.usage().unwrap();
            assert_eq!((usage[0].used, usage[1].used), (0, 424 << 20));
        },
    );
}

#[test]
fn before_init_little_is_answered() {
    on("before_init_little_is_answered", &[Gpu::h200(0)], |cuda| {
        let (mut number, mut text) = (0i32, std::ptr::null::<std::ffi::c_char>());
        assert_eq!(
            cu!(cuda, cuDeviceGetCount(&raw mut number)),
            CUDA_ERROR_NOT_INITIALIZED
        );
        assert_eq!(cuda.allocate(1), Err(CUDA_ERROR_NOT_INITIALIZED));
        assert_eq!(cu!(cuda, cuMemFree_v2(0u64)), CUDA_ERROR_NOT_INITIALIZED);
        assert_eq!(cu!(cuda, cuDriverGetVersion(&raw mut number)), 0);
        assert_eq!(number, 13_000);
        assert_eq!(cu!(cuda, cuGetErrorName(2u32, &raw mut text)), 0);
        // SAFETY: the driver gave a text that lasts.
        let name = unsafe { std::ffi::CStr::from_ptr(text) };
        assert_eq!(name, c"CUDA_ERROR_OUT_OF_MEMORY");
        assert_eq!(
            cu!(cuda, cuGetErrorString(12345u32, &raw mut text)),
            CUDA_ERROR_INVALID_VALUE
        );
        assert_eq!(cu!(cuda, cuInit(1u32)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cu!(cuda, cuInit(0u32)), 0);
        assert_eq!(cu!(cuda, cuInit(0u32)), 0);
        assert_eq!(cuda.allocate(1), Err(CUDA_ERROR_INVALID_CONTEXT));
        assert_eq!(cu!(cuda, cuMemFree_v2(0u64)), 0);
        assert_eq!(
            cu!(cuda, cuCtxGetDevice(&raw mut number)),
            CUDA_ERROR_INVALID_CONTEXT
        );
        assert_eq!(
            cu!(cuda, cuDeviceGet(&raw mut number, 5i32)),
            CUDA_ERROR_INVALID_DEVICE
        );
    });
}
