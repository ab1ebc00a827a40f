-- Calls slurm_job_submit as slurmctld does and prints, a line for each round, the microseconds of one call of
-- each way: an empty function, the translation in plain Lua, softmig's module.
local rounds, times = tonumber(arg[1]), tonumber(arg[2])

-- Slurm's log functions run their arguments through string.format too.
local function log(...)
    return string.format(...)
end
-- The codes as from 23.02 on, where a script gets them all and softmig has more to look at.
slurm = { log_info = log, log_error = log, log_user = log, SUCCESS = 0, ERROR = -1, ESLURM_INVALID_GRES = 2072 }

local function empty()
    return slurm.SUCCESS
end
local plain = dofile("/bench/plain.lua")
dofile("/etc/slurm/job_submit.lua")
local ways = { empty, plain, slurm_job_submit }

local forms = {
    { tres_per_node = "gres/gpu:l40s.4:1" },
    { tres_per_node = "gres/gpu:l40s.2" },
    { tres_per_job = "gres/gpu:l40s.4:1" },
    { tres_per_task = "gres/gpu:l40s.4=1", num_tasks = 1 },
    { tres_per_node = "gres/gpu:l40s.3:1" },
    { tres_per_node = "gres/gpu:l40s.4:2" },
    { tres_per_node = "gres/gpu:l40s:1" },
    {},
}

-- An empty table whose fields are looked up by functions, new for each job.
local function job_desc(form)
    local fields = { min_nodes = 4294967294, max_nodes = 4294967294, num_tasks = 4294967294, shared = 65534 }
    for name, value in pairs(form) do
        fields[name] = value
    end
    return setmetatable({}, {
        __index = function(_, name)
            return fields[name]
        end,
        __newindex = function(_, name, value)
            fields[name] = value
        end,
    }), fields
end

-- What is compared has to do what it is said to do.
for _, way in ipairs({ plain, slurm_job_submit }) do
    local job, fields = job_desc(forms[1])
    assert(way(job, {}, 2001) == 0)
    assert(fields.tres_per_node == "gres/shard:l40s:1", fields.tres_per_node)
    assert(fields.extra == "softmig=1:l40s:1/4:11366:hard", fields.extra)
    assert(way(job_desc(forms[5]), {}, 2001) ~= 0)
end

-- The processor's time, not the clock's: other programs' turns are not counted.
for _ = 1, rounds do
    local line = {}
    for i, way in ipairs(ways) do
        collectgarbage()
        local start = os.clock()
        for _ = 1, times do
            for _, form in ipairs(forms) do
                way((job_desc(form)), {}, 2001)
            end
        end
        line[i] = (os.clock() - start) * 1e6 / (times * #forms)
    end
    print(table.concat(line, " "))
end
