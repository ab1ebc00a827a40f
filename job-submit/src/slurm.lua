-- What the module asks Lua for, as few calls as possible: each call from Rust is a protected one, and so is each
-- text that it hands over.

-- By these fields most jobs are through.
local function read_gpus(job)
    return job.tres_per_node, job.tres_per_job, job.tres_per_socket, job.tres_per_task, job.ntasks_per_tres, job.shared,
        job.qos, job.extra, job.comment
end

local function read_request(job)
    return job.tres_bind, job.tres_freq, job.cpus_per_tres, job.mem_per_tres, job.min_nodes, job.max_nodes,
        job.num_tasks, job.ntasks_per_node, job.cpus_per_task, job.min_cpus, job.pn_min_cpus, job.sockets_per_node,
        job.min_mem_per_node, job.min_mem_per_cpu
end

local function read_place(job)
    return job.user_id, job.group_id, job.account, job.partition, job.reservation, job.exc_nodes, job.time_limit
end

-- A job that Slurm has already: its record has other names for some fields.
local function read_record(job)
    return job.extra, job.comment, job.qos, job.user_id, job.group_id, job.account, job.partition, job.resv_name,
        job.time_limit
end

-- The same, where some field raises an error: that one is as good as not set.
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

-- nil leaves a field as it is.
local function write(
    job, tres_per_node, tres_per_job, tres_per_socket, tres_per_task, tres_bind, cpus_per_tres, mem_per_tres,
    ntasks_per_tres, min_nodes, max_nodes, num_tasks, cpus_per_task, min_cpus, min_mem_per_node,
    qos, partition, exc_nodes, extra, comment
)
    if tres_per_node then job.tres_per_node = tres_per_node end
    if tres_per_job then job.tres_per_job = tres_per_job end
    if tres_per_socket then job.tres_per_socket = tres_per_socket end
    if tres_per_task then job.tres_per_task = tres_per_task end
    if tres_bind then job.tres_bind = tres_bind end
    if cpus_per_tres then job.cpus_per_tres = cpus_per_tres end
    if mem_per_tres then job.mem_per_tres = mem_per_tres end
    if ntasks_per_tres then job.ntasks_per_tres = ntasks_per_tres end
    if min_nodes then job.min_nodes = min_nodes end
    if max_nodes then job.max_nodes = max_nodes end
    if num_tasks then job.num_tasks = num_tasks end
    if cpus_per_task then job.cpus_per_task = cpus_per_task end
    if min_cpus then job.min_cpus = min_cpus end
    if min_mem_per_node then job.min_mem_per_node = min_mem_per_node end
    if qos then job.qos = qos end
    if partition then job.partition = partition end
    if exc_nodes then job.exc_nodes = exc_nodes end
    if extra then job.extra = extra end
    if comment then job.comment = comment end
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
    read_gpus = read_gpus,
    read_request = read_request,
    read_place = read_place,
    read_record = read_record,
    read_what_can_be_read = read_what_can_be_read,
    write = write,
    log_user = log_user,
    log_info = log_info,
    log_error = log_error,
    passes_extra_to_prolog = passes_extra_to_prolog,
}
