//! Which GPUs a process has: those whose device it can open.

use std::fs::OpenOptions;
use std::path::Path;

use crate::description::Description;

impl Description {
    /// The numbers of the GPUs that this process can open, in the driver's order.
    #[must_use]
    pub fn open_gpus(&self) -> Vec<usize> {
        let gpus = self.gpus.iter().enumerate();
        gpus.filter(|(_, gpu)| can_open(&self.devices.join(format!("nvidia{}", gpu.minor))))
            .map(|(number, _)| number)
            .collect()
    }
}

/// "No such device or address" counts as open: a test's devices have no driver behind them, but where a control group
/// fences one off, its open fails before any driver is asked.
fn can_open(device: &Path) -> bool {
    match OpenOptions::new().read(true).write(true).open(device) {
        Ok(_) => true,
        Err(error) => error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()),
    }
}
