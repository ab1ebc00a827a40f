//! Which devices a program has.

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Description, Gpu, PLACE_VARIABLE};

use crate::harness::*;

/// The bus numbers of the devices, or the code of cuInit.
fn devices() -> Result<Vec<String>, u32> {
    match cu!(cuInit(0u32)) {
        0 => {}
        code => return Err(code),
    }
    let count: i32 = new!(cuDeviceGetCount());
    let buses = (0..count).map(|device| {
        let mut bus = [0u8; 32];
        ok!(cuDeviceGetPCIBusId(bus.as_mut_ptr(), 32i32, device));
        String::from_utf8_lossy(&bus[5..7]).into_owned()
    });
    Ok(buses.collect())
}

#[test]
fn before_init_little_is_answered() {
    test(|| {
        let mut number = 0i32;
        let code = cu!(cuDeviceGetCount(&raw mut number));
        assert_eq!(code, CUDA_ERROR_NOT_INITIALIZED);
        assert_eq!(allocate(1), Err(CUDA_ERROR_NOT_INITIALIZED));
        assert_eq!(cu!(cuMemFree_v2(0u64)), CUDA_ERROR_NOT_INITIALIZED);
        ok!(cuDriverGetVersion(&raw mut number));
        let mut text = std::ptr::null();
        ok!(cuGetErrorName(2u32, &raw mut text));
        // SAFETY: the driver gave a text that lasts.
        let name = unsafe { std::ffi::CStr::from_ptr(text) };
        assert_eq!(name, c"CUDA_ERROR_OUT_OF_MEMORY");
        assert_eq!(cu!(cuInit(1u32)), CUDA_ERROR_INVALID_VALUE);
        ok!(cuInit(0u32));
        ok!(cuInit(0u32));
        assert_eq!(allocate(1), Err(CUDA_ERROR_INVALID_CONTEXT));
        ok!(cuMemFree_v2(0u64));
        let code = cu!(cuDeviceGet(&raw mut number, 99i32));
        assert_eq!(code, CUDA_ERROR_INVALID_DEVICE);
    });
}

#[test]
fn the_variable_chooses_and_orders() {
    const NAME: &str = "CUDA_VISIBLE_DEVICES";
    let none = Err(CUDA_ERROR_NO_DEVICE);
    let description = Description::new(&Gpu::several(4, Gpu::l40s));
    if is_real() {
        return fake(&description, || {});
    }
    for (variable, wanted) in [
        ("0", Ok(&["21"][..])),
        ("2,0", Ok(&["23", "21"][..])),
        ("0,7", Ok(&["21"])),
        ("7,0", none),
        ("", none),
        ("-1", none),
        ("0,0", Err(CUDA_ERROR_INVALID_DEVICE)),
        (" 1", Ok(&["22"])),
        ("1x", Ok(&["22"])),
        ("+1", Ok(&["22"])),
        ("a1", none),
        ("GPU-26b910de-0000-4000-8000-000000000003", Ok(&["24"])),
        // Clear in no place before the last.
        ("GPU-26b910de", none),
        ("NoDevFiles", none),
    ] {
        // One process for each value; in it, the others are passed over.
        if std::env::var(NAME).is_ok_and(|set| set != variable) {
            continue;
        }
        fake_with(&description, &[(NAME, variable)], || {
            let wanted = wanted.map(|buses| buses.iter().map(ToString::to_string).collect());
            assert_eq!(devices(), wanted, "{variable:?}");
        });
    }
}

#[test]
fn fenced_devices_are_not_there() {
    fake(&Description::new(&Gpu::several(4, Gpu::l40s)), || {
        let place = std::path::PathBuf::from(std::env::var_os(PLACE_VARIABLE).unwrap());
        for minor in [0, 2] {
            std::fs::remove_file(place.with_file_name(format!("nvidia{minor}"))).unwrap();
        }
        assert_eq!(devices(), Ok(vec!["22".into(), "24".into()]));
    });
}

#[test]
fn a_part_is_chosen_by_its_uuid() {
    let gpu = Gpu::a100_divided(0, &["3g.20gb", "1g.5gb"]);
    let wanted = gpu.instances()[1].clone();
    let variables = [("CUDA_VISIBLE_DEVICES", &*wanted.uuid)];
    fake_with(&Description::new(&[gpu]), &variables, || {
        start();
        assert_eq!(info().1 as u64, wanted.memory);
        assert_eq!(allocate(5 << 30), Err(CUDA_ERROR_OUT_OF_MEMORY));
    });
}
