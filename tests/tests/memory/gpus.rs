//! Several GPUs: each has an account of its own, whatever number a process knows it by.

use anyhow::{Result, ensure};
use softmig_fake_node::{Description, Gpu, MIB};

use crate::memory::stand::{Running, Stand, context, number};

/// Two GPUs, with room for two contexts and 100 blocks of 8 MiB on each.
fn stand() -> Result<Stand> {
    let gpus = Gpu::several(2, Gpu::h200);
    Stand::with(2 * context() / MIB + 801, Description::new(&gpus))
}

/// Starts a client that holds what it can get of a GPU, of those that it sees.
fn hold(stand: &Stand, visible: &str, device: &str, count: &str) -> Result<(Running, u64)> {
    let mut command = stand.client(&["takes", "cuMemAlloc_v2", "8388608", "hold", count]);
    command
        .env("CUDA_VISIBLE_DEVICES", visible)
        .env("DEVICE", device);
    let mut client = Running::start(command)?;
    let took = number(&client.hears("took: ")?, "blocks")?;
    Ok((client, took))
}

#[test]
fn a_gpu_has_one_account_under_all_its_numbers() -> Result<()> {
    let stand = stand()?;
    let (_one, took) = hold(&stand, "1", "0", "60")?;
    ensure!(took == 60, "{took}");
    let second = &stand.gpus.usage()?[1];
    ensure!(second.used == context() + 60 * 8 * MIB, "{second:?}");
    let (_two, took) = hold(&stand, "0,1", "1", "0")?;
    ensure!(took == 40, "{took}");
    let (_three, took) = hold(&stand, "1,0", "1", "0")?;
    ensure!(took == 100 + context() / (8 * MIB), "{took}");
    stand.check_peaks()
}

#[test]
fn each_gpu_has_the_limit_of_its_number() -> Result<()> {
    let stand = stand()?;
    for (device, mib) in [("0", 800), ("1", 1400)] {
        let mut command = stand.client(&["takes", "cuMemCreate", "8388608", "fill"]);
        command
            .env("CUDA_DEVICE_MEMORY_LIMIT_1", "1400M")
            .env("CUDA_DEVICE_MEMORY_LIMIT_0", "800M")
            .env("DEVICE", device);
        let said = Running::start(command)?.end()?;
        let blocks = (mib - 1 - context() / MIB) / 8;
        ensure!(said.number("took", "blocks")? == blocks, "{said:#?}");
    }
    let peaks = [stand.gpus.peak(0), stand.gpus.peak(1)];
    ensure!(peaks[0] <= 800 * MIB && peaks[1] <= 1400 * MIB, "{peaks:?}");
    Ok(())
}
