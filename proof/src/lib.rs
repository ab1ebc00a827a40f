//! Measures on a GPU whether steering it by its own scheduler has effect.
//!
//! Two short programs ([`load`]) keep the GPU busy for some seconds. Meanwhile root does with them what softmig-monitor does
//! with jobs, and looks at what they get:
//!
//! | step | what is done | what has to be seen |
//! |---|---|---|
//! | `open` | the GPU and its log are opened | the driver takes the calls |
//! | `log` | nothing | the log of context switches has both programs |
//! | `owner` | one is asked for the other's channel group | the driver says that it is not its own |
//! | `slices` | time slices of 8000 and 2000 us are set | 80 % and 20 % of the time and of the work |
//! | `hold` | the first one's channels are disabled | it is not on the GPU and gets nothing done, and the other goes on |
//! | `go_on` | they are enabled | it goes on |
//! | | they are enabled once more, and disabled | noted: whether it is off the GPU again |
//! | `long` | the same within a kernel of 100 ms | the same |
//!
//! [`prove`] does it all on a GPU. `steps` has the order, `verdict` what the figures mean; both know no GPU. The programs are
//! processes of this executable, since each has to have a context and channels of its own. They note their channels
//! themselves (`noted`). None keeps more of root's rights than it needs (`rights`).

mod bench;
mod cuda;
mod load;
mod noted;
mod program;
mod residence;
mod rights;
mod steps;
mod trouble;
mod verdict;

pub use bench::{confine, prove};
pub use load::run as load;
pub use program::Program;
pub use rights::keep_rights_to_borrow;
pub use steps::{Figures, Outcome};
pub use trouble::Trouble;
pub use verdict::Phase;
