-- /etc/slurm/cli_filter.lua: gives sbatch, salloc and srun softmig's answer before they send anything, and lets
-- srun ask for a slice inside a job.
--
-- Every machine where one of these commands runs needs this file, also nodes without GPUs: with CliFilterPlugins=lua
-- and no script, Slurm's commands end with an error. Where softmig's module is missing or cannot be loaded, this script
-- lets every request pass as it is typed, and job_submit decides. 'softmig check' on that machine says what is missing,
-- and so does 'srun -v'.
--
-- A site with a cli_filter.lua of its own keeps it and adds the lines below at its end, before its return:
-- softmig then runs after the site's slurm_cli_pre_submit.

-- By its full path: require would look into the current folder first.
local softmig = "/usr/lib/softmig/lua/" .. _VERSION:match("%d+%.%d+") .. "/softmig_cli_filter.so"
local loaded, why = pcall(function()
    assert(package.loadlib(softmig, "luaopen_softmig_cli_filter"))().install()
end)
if not loaded then
    local nothing = function() return slurm.SUCCESS end
    local site = slurm_cli_post_submit or nothing
    -- Only here the client heeds its own -v.
    function slurm_cli_post_submit(...)
        slurm.log_verbose("%s", "softmig: cli_filter does nothing here: " .. tostring(why))
        return site(...)
    end
    -- Slurm wants these as well.
    slurm_cli_setup_defaults = slurm_cli_setup_defaults or nothing
    slurm_cli_pre_submit = slurm_cli_pre_submit or nothing
end

return slurm.SUCCESS
