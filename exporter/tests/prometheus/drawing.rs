//! The dashboards as Grafana's own components draw them in Chromium.

use crate::contrib;
use crate::fixture::STEP;
use crate::server::target;
use flate2::read::ZlibDecoder;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;

/// Draws a dashboard of the five minutes until `end`, and returns the texts of its panels.
pub fn draw(prometheus: &str, name: &str, variable: &str, end: f64, folder: &Path) -> String {
    let picture = folder.join(format!("{name}.png"));
    let packages = target().join("grafana");
    let missing = "is missing: `cargo xtask test` brings it";
    assert!(packages.exists(), "{} {missing}", packages.display());
    let done = Command::new("node")
        .current_dir(packages)
        .arg(contrib("grafana/draw/draw.mjs"))
        .arg("--dashboard")
        .arg(contrib(&format!("grafana/{name}.json")))
        .arg("--out")
        .arg(&picture)
        .arg(format!("--prometheus=http://{prometheus}"))
        .arg(format!("--variable={variable}"))
        .arg(format!("--from={}", end - 300.0))
        .arg(format!("--to={end}"))
        .arg(format!("--step={STEP}"))
        .args(["--last", "--chromium=/usr/bin/chromium-headless-shell"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{name}: {errors}");
    assert_picture(&fs::read(&picture).unwrap());
    String::from_utf8(done.stdout).unwrap()
}

/// A PNG of the size of a dashboard, with something on it.
fn assert_picture(png: &[u8]) {
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    let (width, height) = (number(16), number(20));
    assert!(
        width == 1400 && (1000..3000).contains(&height),
        "{width} x {height}"
    );
    let mut packed = Vec::new();
    // Each chunk: the length of its data, its name, its data, a checksum.
    let mut at = 8;
    while at < png.len() {
        let data = at + 8..at + 8 + number(at) as usize;
        if &png[at + 4..at + 8] == b"IDAT" {
            packed.extend_from_slice(&png[data.clone()]);
        }
        at = data.end + 4;
    }
    let mut pixels = Vec::new();
    ZlibDecoder::new(&packed[..])
        .read_to_end(&mut pixels)
        .unwrap();
    // A picture of one colour has a handful: the colour's own, and those that say how a row is packed.
    let bytes: BTreeSet<u8> = pixels.into_iter().collect();
    assert!(bytes.len() > 100, "{bytes:?}");
}
