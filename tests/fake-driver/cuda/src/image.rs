//! The image of a module. It is text, in lines such as
//!
//! ```text
//! kernel step 2000000      a kernel that runs for this many nanoseconds
//! kernel busy argument     one that runs for as many as its first argument says, 64 bits wide
//! kernel await spins       one that spins until the word at its first argument is not 0; others run beside it
//! kernel set writes        one that writes its second argument to the word at its first
//! kernel deep 1000 local 4096   one whose threads need 4096 bytes of stack; "heap" instead: one that uses malloc
//! global table 1048576     a variable of this many bytes
//! managed table 1048576    a managed one, which host and device share
//! code 4194304             how many bytes its code takes; without this line, as many as the image is long
//! ```
//!
//! A line may begin with `//`, so that it can be in a PTX text that a real GPU runs. A kernel of a PTX text without
//! such a line runs for 10 us, as does each kernel of a binary image.

/// How long a kernel runs if no line says it, in nanoseconds.
const UNSAID: u64 = 10_000;

/// A parsed image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    kernels: Vec<(String, Kernel)>,
    pub(crate) variables: Vec<(String, u64)>,
    /// Those that host and device share.
    pub(crate) managed: Vec<(String, u64)>,
    /// Bytes.
    pub(crate) code: u64,
    /// Whether its kernels cannot be read, and any name is one.
    opaque: bool,
}

/// A kernel of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) act: Act,
    /// The stack of a thread, in bytes.
    pub(crate) frame: u64,
    /// Whether it takes memory itself.
    pub(crate) heap: bool,
}

impl Kernel {
    /// One that does this, and needs nothing.
    fn doing(act: Act) -> Kernel {
        Kernel {
            act,
            frame: 0,
            heap: false,
        }
    }
}

/// A kernel's action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// It runs for this many nanoseconds.
    Runs(u64),
    /// It runs for as many as its first argument says.
    RunsAsAsked,
    /// It waits until the word at its first argument is not 0.
    Spins,
    /// It writes its second argument to the word at its first.
    Writes,
}

impl Image {
    /// An image in machine code.
    pub(crate) fn binary() -> Image {
        Image {
            code: 1 << 20,
            opaque: true,
            ..Image::default()
        }
    }

    /// Reads a text; `None` if it is not an image.
    pub(crate) fn parse(text: &str) -> Option<Image> {
        let mut image = Image::default();
        let mut code = None;
        for line in text.lines() {
            let line = line.trim().trim_start_matches('/').trim_start();
            let mut words = line.split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (Some("kernel"), Some(name), Some(act)) => {
                    let mut kernel = Kernel::doing(match act {
                        "argument" => Act::RunsAsAsked,
                        "spins" => Act::Spins,
                        "writes" => Act::Writes,
                        time => Act::Runs(time.parse().ok()?),
                    });
                    while let Some(word) = words.next() {
                        match word {
                            "local" => kernel.frame = words.next()?.parse().ok()?,
                            "heap" => kernel.heap = true,
                            _ => return None,
                        }
                    }
                    image.enter(name, kernel);
                }
                (Some("global"), Some(name), Some(bytes)) => {
                    image.variables.push((name.into(), bytes.parse().ok()?));
                }
                (Some("managed"), Some(name), Some(bytes)) => {
                    image.managed.push((name.into(), bytes.parse().ok()?));
                }
                (Some("code"), Some(bytes), None) => code = Some(bytes.parse().ok()?),
                _ => {}
            }
        }
        let is_ptx = text.contains(".version");
        for name in ptx_kernels(text).filter(|_| is_ptx) {
            image.enter(name, Kernel::doing(Act::Runs(UNSAID)));
        }
        let empty = image.kernels.is_empty()
            && image.variables.is_empty()
            && image.managed.is_empty()
            && code.is_none();
        image.code = code.unwrap_or(text.len() as u64);
        (is_ptx || !empty).then_some(image)
    }

    /// The kernel of this name; `None` if the image has no such kernel.
    pub(crate) fn kernel(&self, name: &str) -> Option<Kernel> {
        let found = self.kernels.iter().find(|(known, _)| known == name);
        match found {
            Some((_, kernel)) => Some(*kernel),
            None => self.opaque.then_some(Kernel::doing(Act::Runs(UNSAID))),
        }
    }

    /// The first line that names a kernel counts.
    fn enter(&mut self, name: &str, kernel: Kernel) {
        if !self.kernels.iter().any(|(known, _)| known == name) {
            self.kernels.push((name.into(), kernel));
        }
    }
}

/// The names behind `.entry`.
fn ptx_kernels(text: &str) -> impl Iterator<Item = &str> {
    text.split(".entry").skip(1).filter_map(|rest| {
        let rest = rest.trim_start();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_$".contains(c)));
        rest.get(..end.unwrap_or(rest.len()))
            .filter(|name| !name.is_empty())
    })
}
