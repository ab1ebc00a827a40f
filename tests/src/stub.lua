-- Slurm as its Lua scripts see it, without Slurm: the log, and records whose fields go through a metatable.

slurm = { SUCCESS = 0, ERROR = -1, ESLURM_INVALID_GRES = 2072 }
for _, name in ipairs({ "log_user", "log_info", "log_error", "log_verbose", "log_debug" }) do
    slurm[name] = function(...)
        print(name .. ": " .. string.format(...))
    end
end

-- Unset numbers are Slurm's NO_VAL, and in Lua 5.4 every number is a float, as lua_pushnumber makes it.
local unset = {
    ntasks_per_tres = 65534, min_nodes = 4294967294, max_nodes = 4294967294, num_tasks = 4294967294,
    ntasks_per_node = 65534, cpus_per_task = 65534, min_cpus = 4294967294, sockets_per_node = 65534, shared = 65534,
}

-- A job record: an empty table with a metatable, that takes no nil, as slurmctld's does.
function record(fields)
    return setmetatable({}, {
        __index = function(_, name)
            local value = fields[name]
            if value == nil then
                value = unset[name]
            end
            if type(value) == "number" then
                return value + 0.0
            end
            return value
        end,
        __newindex = function(_, name, value)
            if value == nil then
                error("string expected, got nil")
            end
            fields[name] = value
            print(name .. " = " .. tostring(value))
        end,
    })
end

-- Options of a client: texts, and "unset".
function options(fields)
    return setmetatable({}, {
        __index = function(_, name)
            return fields[name] or "unset"
        end,
        __newindex = function(_, name, value)
            assert(type(value) == "string", "a text is expected")
            fields[name] = value
            print(name .. " = " .. value)
        end,
    })
end
