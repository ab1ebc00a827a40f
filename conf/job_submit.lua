-- /etc/slurm/job_submit.lua: lets softmig decide on requests for part of a GPU.
--
-- A site with a job_submit.lua of its own keeps it and adds the two lines below at its end, before its return:
-- softmig then runs after the site's slurm_job_submit and slurm_job_modify, on what they made of the job.
-- The module is built once for each Lua; _VERSION picks the one that this slurmctld uses.

-- By its full path: require would look into the current folder first.
local softmig = "/usr/lib/softmig/lua/" .. _VERSION:match("%d+%.%d+") .. "/softmig_job_submit.so"
assert(package.loadlib(softmig, "luaopen_softmig_job_submit"))().install()

return slurm.SUCCESS
