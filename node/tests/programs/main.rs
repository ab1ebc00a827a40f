//! The built prolog and epilog as Slurm runs them, on the real paths, in a mount namespace where these are empty.

mod epilog;
mod folder;
mod place;
mod prolog;
mod run_folder;
