//! Descriptions of the kernel's types.

use softmig_fuzz::bytes;
use softmig_gate::btf::Btf;
use softmig_gate::layout::Layout;

/// The last is a `struct a` with a field of type 1, whose name is in the strings behind it.
const TYPES: [&str; 2] = [
    "\u{1}\0\0\0\0\0\0\u{1}\u{4}\0\0\0\0\0\0\0\0a\0",
    "\u{1}\0\0\0\u{1}\0\0\u{4}\u{8}\0\0\0\u{1}\0\0\0\u{1}\0\0\0\0\0\0\0\0a\0",
];

#[test]
fn types_of_the_kernel() {
    bytes(3000, &TYPES, |bytes| {
        // Each place may be where the names begin.
        for middle in (0..=bytes.len()).step_by(4) {
            let (types, names) = (middle as u32, (bytes.len() - middle) as u32);
            let header = [0x0001_eb9f, 24, 0, types, types, names];
            let header = header.into_iter().flat_map(u32::to_ne_bytes);
            let text: Vec<u8> = header.chain(bytes.iter().copied()).collect();
            let Ok(btf) = Btf::parse(&text) else { continue };
            let _ = btf.field("a", "a");
            let _ = btf.field("", "x");
            let _ = btf.constant("a");
            assert!(Layout::find(&btf).is_err());
        }
        let _ = Btf::parse(bytes);
    });
}
