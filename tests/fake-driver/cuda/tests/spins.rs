//! Kernels that wait for others: they hold up what comes behind them in their stream, and nothing else.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use softmig_driver_sys::cuda::*;
use support::{Cuda, cu, driven};

const TEXT: &str = "kernel await spins\nkernel set writes\nkernel step 2000000";

fn launch(cuda: &Cuda, kernel: usize, stream: usize, arguments: [u64; 2]) {
    let mut places = [&raw const arguments[0], &raw const arguments[1]];
    let code = cu!(
        cuda,
        cuLaunchKernel(
            kernel,
            1u32,
            1u32,
            1u32,
            1u32,
            1u32,
            1u32,
            0u32,
            stream,
            places.as_mut_ptr(),
            0usize
        )
    );
    assert_eq!(code, 0);
}

#[test]
fn a_kernel_spins_until_another_writes_its_word() {
    driven("a_kernel_spins_until_another_writes_its_word", |cuda| {
        cuda.start();
        let kernel = |name| cuda.kernel(TEXT, name);
        let (spins, writes, step) = (kernel("await"), kernel("set"), kernel("step"));
        let (one, two, ends) = (cuda.stream(), cuda.stream(), [cuda.event(), cuda.event()]);
        let word = AtomicU32::new(0);
        let address = word.as_ptr() as u64;
        launch(&cuda, spins, one, [address, 0]);
        assert_eq!(cu!(cuda, cuEventRecord(ends[0], one)), 0);
        assert_eq!(cuda.launch(step, one), 0);
        assert_eq!(cuda.launch(step, two), 0);
        launch(&cuda, writes, two, [address, 7]);
        assert_eq!(cu!(cuda, cuEventRecord(ends[1], two)), 0);
        // The device works for the second stream alone.
        assert_eq!(cuda.node.busy_until(0), 2_000_000);
        assert_eq!(cu!(cuda, cuEventQuery(ends[0])), CUDA_ERROR_NOT_READY);
        assert_eq!(word.load(Ordering::SeqCst), 0);
        cuda.node.advance(Duration::from_millis(2)).unwrap();
        assert_eq!(cu!(cuda, cuEventQuery(ends[1])), 0);
        assert_eq!(word.load(Ordering::SeqCst), 7);
        assert_eq!(cu!(cuda, cuEventQuery(ends[0])), 0);
        assert_eq!(cu!(cuda, cuStreamQuery(one)), CUDA_ERROR_NOT_READY);
        cuda.node.advance(Duration::from_millis(2)).unwrap();
        assert_eq!(cu!(cuda, cuStreamQuery(one)), 0);
    });
}

/// The host too can let it go on.
#[test]
fn a_kernel_spins_in_a_graph_as_elsewhere() {
    driven("a_kernel_spins_in_a_graph_as_elsewhere", |cuda| {
        cuda.start();
        let (stream, spins) = (cuda.stream(), cuda.kernel(TEXT, "await"));
        let word = AtomicU32::new(0);
        let (mut graph, mut ready) = (0usize, 0usize);
        assert_eq!(cu!(cuda, cuStreamBeginCapture_v2(stream, 0u32)), 0);
        launch(&cuda, spins, stream, [word.as_ptr() as u64, 0]);
        assert_eq!(cu!(cuda, cuStreamEndCapture(stream, &raw mut graph)), 0);
        assert_eq!(
            cu!(
                cuda,
                cuGraphInstantiateWithFlags(&raw mut ready, graph, 0u64)
            ),
            0
        );
        assert_eq!(cu!(cuda, cuGraphLaunch(ready, stream)), 0);
        assert_eq!(cu!(cuda, cuStreamQuery(stream)), CUDA_ERROR_NOT_READY);
        word.store(1, Ordering::SeqCst);
        assert_eq!(cu!(cuda, cuStreamQuery(stream)), 0);
    });
}
