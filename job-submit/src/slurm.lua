-- The module's own functions in Lua. Their argument is the list of the names of fields.
local names = ...

-- Reads, where some field raises an error: that one is as good as not set.
local function read_what_can_be_read(read, job)
    return read(setmetatable({}, {
        __index = function(_, name)
            local ok, value = pcall(function()
                return job[name]
            end)
            return ok and value or nil
        end,
    }))
end

-- Only fields that change: for each one the place of its name, and its value.
local function write(job, at, value, ...)
    if at then
        job[names[at]] = value
        return write(job, ...)
    end
end

-- The text is an argument, never the format: these functions run it through string.format. Slurm drops the whole text
-- in some clients when it holds a line feed: a call for each line.
local function log_user(text)
    for line in text:gmatch("[^\n]+") do
        slurm.log_user("%s", line)
    end
end

local function log_info(line)
    slurm.log_info("%s", line)
end

local function log_error(line)
    slurm.log_error("%s", line)
end

-- From Slurm 23.02 on, which is also the first release that gives scripts the names of all errors.
local passes_extra_to_prolog = slurm ~= nil and slurm.ESLURM_INVALID_GRES ~= nil

return {
    read_what_can_be_read = read_what_can_be_read,
    write = write,
    log_user = log_user,
    log_info = log_info,
    log_error = log_error,
    passes_extra_to_prolog = passes_extra_to_prolog,
}
