//! One process, each way to launch, kernels of each length.

use anyhow::Result;

use crate::stand::{Stand, share};

#[test]
fn show() -> Result<()> {
    let stand = Stand::new()?;
    for (ns, way) in [("100000", "async"), ("100000", "sync"), ("20000", "sync"), ("5000", "async"), ("20000000", "async"),("100000", "captured"), ("1000000", "idle"), ("100000", "mixed")] {
        let words = ["paced", ns, "2000", way];
        let without = share(stand.unlimited(&words))?;
        let with: Vec<f64> = ["25", "50"].iter().map(|p| share(stand.limited(p, &words))).collect::<Result<_>>()?;
        eprintln!("{ns} {way}: {without} {with:?}");
    }
    Ok(())
}
