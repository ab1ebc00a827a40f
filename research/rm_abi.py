#!/usr/bin/env python3
"""The interface of NVIDIA's kernel driver as far as softmig uses it: sizes, places of fields, numbers, and who may call.

Reads NVIDIA's open kernel modules (MIT licence) at each TAG out of a git repository, has a C compiler say what their headers
mean, and writes numbers alone to rm/abi.json. A test of the crate rm compares them with its own. Run it for each new branch of
the driver, with the tags that are in rm/abi.json and the new one:

    python3 research/rm_abi.py --repository FOLDER 515.43.04 535.43.02 580.142 ...

Needs git, a C compiler, and a clone of github.com/NVIDIA/open-gpu-kernel-modules. No GPU.
"""

import argparse
import json
import pathlib
import re
import subprocess
import tempfile

FOLDERS = ["src/common/sdk/nvidia/inc", "src/nvidia/arch/nvalloc/unix/include"]
HEADERS = """nvtypes.h nvos.h nvstatus.h nv_escape.h nv-unix-nvos-params-wrappers.h class/cl0080.h class/cl2080.h class/cl90cd.h
class/cl90cdfecs.h ctrl/ctrl90cd.h ctrl/ctrla06c.h ctrl/ctrl2080/ctrl2080fifo.h ctrl/ctrl2080/ctrl2080gpu.h
ctrl/ctrl2080/ctrl2080gr.h""".split()

# Each structure with the fields that softmig reads or writes.
STRUCTURES = {
    "NVOS00_PARAMETERS": "hRoot hObjectParent hObjectOld status",
    "NVOS54_PARAMETERS": "hClient hObject cmd flags params paramsSize status",
    "NVOS21_PARAMETERS": "hRoot hObjectParent hObjectNew hClass pAllocParms paramsSize status",
    "NVOS64_PARAMETERS": "hRoot hObjectParent hObjectNew hClass pAllocParms paramsSize flags status",
    "nv_ioctl_nvos33_parameters_with_fd": "params.hClient params.hDevice params.hMemory params.offset params.length "
    "params.pLinearAddress params.status params.flags fd",
    "NV0080_ALLOC_PARAMETERS": "deviceId hClientShare hTargetClient hTargetDevice flags vaSpaceSize vaMode",
    "NV2080_ALLOC_PARAMETERS": "subDeviceId",
    "NV_MEMORY_ALLOCATION_PARAMS": "owner type flags attr attr2 size alignment offset limit address hVASpace tag numaNode",
    "NV_EVENT_BUFFER_ALLOC_PARAMETERS": "bufferHeader recordBuffer recordSize recordCount vardataBuffer vardataBufferSize "
    "recordsFreeThreshold notificationHandle vardataFreeThreshold hSubDevice flags hBufferHeader hRecordBuffer hVardataBuffer",
    "NV_EVENT_BUFFER_HEADER": "recordGet recordPut recordCount recordDropcount",
    "NV_EVENT_BUFFER_FECS_RECORD_V2": "tag vmid seqno context_id pid migGpuInstanceId migComputeInstanceId timestamp",
    "NV_EVENT_BUFFER_RECORD_HEADER": "type",
    "NV2080_CTRL_GPU_GET_GID_INFO_PARAMS": "index flags length data",
    "NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS": "bDisable numChannels bOnlyDisableScheduling bRewindGpPut pRunlistPreemptEvent "
    "hClientList hChannelList",
    "NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS": "hEventBuffer recordSize levelOfDetail eventFilter bAllUsers reasonCode",
    "NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS_PARAMS": "enable flags",
    "NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET_PARAMS": "recordBufferGet varDataBufferGet",
    "NVA06C_CTRL_TIMESLICE_PARAMS": "timesliceUs",
}
CONTROLS = """NV2080_CTRL_CMD_GPU_GET_GID_INFO NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS
NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2 NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET
NV_EVENT_BUFFER_CTRL_CMD_FLUSH NVA06C_CTRL_CMD_SET_TIMESLICE NVA06C_CTRL_CMD_GET_TIMESLICE""".split()
NUMBERS = CONTROLS + """NV_ESC_RM_FREE NV_ESC_RM_CONTROL NV_ESC_RM_ALLOC NV_ESC_RM_MAP_MEMORY NV01_DEVICE_0 NV20_SUBDEVICE_0
NV_EVENT_BUFFER NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_START NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_END NV_EVENT_BUFFER_HIDDEN_PID
NV_EVENT_BUFFER_KERNEL_PID NV2080_CTRL_GR_FECS_BIND_EVTBUF_LOD_SIMPLE NV_EVENT_BUFFER_FLAG_OVERFLOW_POLICY_KEEP_OLDEST
NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES NV_ERR_BUSY_RETRY NV_ERR_GPU_IS_LOST NV_ERR_IN_USE NV_ERR_INSUFFICIENT_RESOURCES
NV_ERR_INSUFFICIENT_PERMISSIONS NV_ERR_INVALID_ARGUMENT NV_ERR_INVALID_CHANNEL NV_ERR_INVALID_CLIENT NV_ERR_INVALID_OBJECT
NV_ERR_INVALID_OBJECT_HANDLE NV_ERR_INVALID_OBJECT_PARENT NV_ERR_INVALID_PARAM_STRUCT NV_ERR_NO_MEMORY NV_ERR_NOT_READY
NV_ERR_NOT_SUPPORTED NV_ERR_OBJECT_NOT_FOUND NV_ERR_RESET_REQUIRED NV_ERR_STATE_IN_USE NV_ERR_SIGNAL_PENDING NV_ERR_TIMEOUT
NV_ERR_TIMEOUT_RETRY""".split()
# The files in which the driver's generator says who may call a control.
FLAGS = ["g_subdevice_nvoc.c", "g_event_buffer_nvoc.c", "g_kernel_channel_group_api_nvoc.c"]


def show(repository, tag, path):
    return subprocess.run(["git", "-C", repository, "show", f"{tag}:{path}"], check=True, capture_output=True, text=True).stdout


def questions():
    for structure, fields in STRUCTURES.items():
        yield f"size {structure}", f"sizeof({structure})"
        for field in fields.split():
            yield f"place {structure}.{field}", f"offsetof({structure}, {field})"
    for number in NUMBERS:
        yield f"number {number}", f"(unsigned long long)({number})"


def ask(folder, asked):
    """What the compiler says to each question, or None if it does not understand one."""
    lines = [f"#include <{name}>" for name in ["stddef.h", "stdio.h"] + HEADERS] + ["int main(void) {"]
    lines += [f'    printf("%llu\\n", (unsigned long long)({what}));' for what in asked] + ["}"]
    source, program = folder / "ask.c", folder / "ask"
    source.write_text("\n".join(lines))
    includes = [f"-I{folder / path}" for path in FOLDERS]
    # Some definitions are macros that want this type.
    built = subprocess.run(["cc", "-w", "-DNV_UNIX", "-DNV_LINUX", *includes, "-o", program, source], capture_output=True)
    if built.returncode:
        return None
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return [int(line) for line in said.split()]


def facts(repository, tag):
    found = {}
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        archive = subprocess.run(["git", "-C", repository, "archive", tag, *FOLDERS], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", place], check=True, input=archive)
        asked = dict(questions())
        together = ask(folder, asked.values())
        for name, what in asked.items():
            found[name] = ask(folder, [what]) if together is None else [together.pop(0)]
        # A field that a release does not have has no place there.
        found = {name: answer[0] if answer else None for name, answer in found.items()}
    texts = [show(repository, tag, f"src/nvidia/generated/{name}") for name in FLAGS]
    for control in CONTROLS:
        number = found[f"number {control}"]
        rights = None
        for text in texts if number is not None else []:
            entry = re.search(rf"/\*flags=\*/\s*(0x[0-9a-f]+)u,\s*/\*accessRight=\*/\s*(0x[0-9a-f]+)u,\s*/\*methodId=\*/\s*0x{number:x}u,", text)
            if entry:
                rights = [int(part, 16) for part in entry.groups()]
        found[f"flags {control}"] = rights and rights[0]
        found[f"access_right {control}"] = rights and rights[1]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", required=True, help="a clone of NVIDIA's open kernel modules")
    parser.add_argument("tags", nargs="+", metavar="TAG")
    options = parser.parse_args()
    tags = sorted(options.tags, key=lambda tag: [int(part) for part in tag.split(".")])
    known = {}
    for tag in tags:
        print(tag, flush=True)
        for name, value in facts(options.repository, tag).items():
            changes = known.setdefault(name, {})
            # Each value by the first of these releases that has it.
            if not changes or list(changes.values())[-1] != value:
                changes[tag] = value
    path = pathlib.Path(__file__).resolve().parent.parent / "rm/abi.json"
    path.write_text(json.dumps({"made_by": "research/rm_abi.py", "tags": tags, "facts": known}, indent=1) + "\n")


if __name__ == "__main__":
    main()
