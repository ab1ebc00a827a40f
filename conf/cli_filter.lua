-- /etc/slurm/cli_filter.lua: gives sbatch, salloc and srun softmig's answer before they send anything, and lets
-- srun ask for a slice inside a job.
--
-- A site with a cli_filter.lua of its own keeps it and adds the two lines below at its end, before its return:
-- softmig then runs after the site's slurm_cli_pre_submit.

-- By its full path: require would look into the current folder first.
local softmig = "/usr/lib/softmig/lua/" .. _VERSION:match("%d+%.%d+") .. "/softmig_cli_filter.so"
assert(package.loadlib(softmig, "luaopen_softmig_cli_filter"))().install()

return slurm.SUCCESS
