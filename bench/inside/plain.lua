-- The translation as a script in plain Lua would do it, with the policy in its text: for comparison only.
local gpus = { l40s = { shards = 4, mib = 45464, slices = { ["2"] = true, ["4"] = true } } }

return function(job, _, uid)
    for _, field in ipairs({ "tres_per_node", "tres_per_job", "tres_per_socket", "tres_per_task" }) do
        local code, tag
        local text = job[field]
        local changed = text and text:gsub("gpu:([%w_]+)%.(%d+)[:=]?(%d*)", function(kind, size, count)
            local gpu = gpus[kind]
            if not gpu or not gpu.slices[size] or (count ~= "" and count ~= "1") then
                slurm.log_user("%s", "gpu:" .. kind .. "." .. size .. ":" .. count .. " is no slice")
                code = slurm.ESLURM_INVALID_GRES
                return nil
            end
            local shards = math.floor(gpu.shards / tonumber(size))
            local mib = math.floor(gpu.mib * shards / gpu.shards)
            tag = string.format("softmig=1:%s:%d/%d:%d:hard", kind, shards, gpu.shards, mib)
            return string.format("shard:%s:%d", kind, shards)
        end)
        if code then
            return code
        elseif tag then
            job[field] = ""
            job.tres_per_node, job.min_nodes, job.max_nodes = changed, 1, 1
            job.extra = tag
            slurm.log_info("%s", string.format("uid=%d: %s becomes %s", uid, text, changed))
        end
    end
    return slurm.SUCCESS
end
