"""The system-call filter of a program: classic BPF, assembled here so that no library is needed.

Denied calls fail with EPERM, so a program that tries one gets an ordinary error. Ordinary computation, threads, child
processes, files in its folder and unix sockets stay possible; calls into rarely used parts of the kernel, other
processes or the network do not.
"""

from __future__ import annotations

import ctypes
import os
import struct

from rewards.sandbox.isolation import syscalls

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# name: (x86_64, aarch64); None where the architecture has no such call.
_DENIED: dict[str, tuple[int | None, int]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "move_pages": (279, 239), "migrate_pages": (256, 238), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "statmount": (457, 457), "listmount": (458, 458),
    "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162), "syslog": (103, 116),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18), "vhangup": (153, 58), "personality": (135, 92),
    "iopl": (172, -1), "ioperm": (173, -1),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193),
    "semctl": (66, 191), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "mq_open": (240, 180), "mq_unlink": (241, 181), "nfsservctl": (180, 42), "set_mempolicy": (238, 237),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    # Memory that belongs to no process and so escapes every limit.
    "memfd_create": (319, 279), "memfd_secret": (447, 447),
}  # fmt: skip

_SOCKET, _SOCKETPAIR = (41, 198), (53, 199)
_CLONE, _CLONE3 = (56, 220), (435, 435)
_IOCTL = (16, 29)
_SETSOCKOPT, _BUFFER_SIZES = (54, 208), (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF and their FORCE forms
_NAMESPACE_FLAGS = 0x7E020080
_PRLIMIT, _SETAFFINITY, _SETPRIORITY = (302, 261), (203, 122), (141, 140)
_SIGNALS = ((62, 129), (200, 130), (234, 131), (129, 138), (424, 424))  # kill, tkill, tgkill, rt_sigqueueinfo, pidfd
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_EPERM, _ENOSYS, _EACCES = 1, 38, 13
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06


def _statement(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, k)


def _argument(index: int, high: bool = False) -> bytes:
    return _statement(_LOAD, 16 + 8 * index + (4 if high else 0))


def _when(number: int, body: list[bytes]) -> list[bytes]:
    # Every path of a body ends with a return, so nothing has to be restored after it.
    return [_statement(_EQUAL, number, 0, len(body)), *body]


def _only(index: int, value: int, otherwise: int) -> list[bytes]:
    """Allow the call if an argument (its low 32 bits) has this value; otherwise fail with errno `otherwise`."""
    return [
        _argument(index),
        _statement(_EQUAL, value, 0, 1),
        _statement(_RETURN, _ALLOW),
        _statement(_RETURN, _ERRNO | otherwise),
    ]


def build_filter(own_signals_only: int | None = None, *, alone: bool = False) -> bytes:
    """Assemble the filter for this machine.

    `own_signals_only`: process id of the program if no process namespace protects the others; it may then signal only
    itself. `alone`: such a namespace protects them, and the fork server is its first process. Raises `OSError` on an
    architecture that this table does not cover.
    """
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        raise OSError(f"no system-call table for {machine}")
    column = 0 if machine == "x86_64" else 1
    program = [
        _statement(_LOAD, 4),
        _statement(_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _statement(_RETURN, _KILL),
        _statement(_LOAD, 0),
    ]
    if column == 0:
        # The x32 table would be a second door to the same calls.
        program += [_statement(_AT_LEAST, 0x40000000, 0, 1), _statement(_RETURN, _ERRNO | _ENOSYS)]
    for numbers in (_SOCKET, _SOCKETPAIR):
        program += _when(numbers[column], _only(0, 1, _EACCES))
    program += _when(_CLONE[column], _forbid_bits(0, _NAMESPACE_FLAGS))
    # clone3 hides its flags behind a pointer; the C library falls back to clone on ENOSYS.
    program += _when(_CLONE3[column], [_statement(_RETURN, _ERRNO | _ENOSYS)])
    program += _when(_IOCTL[column], _forbid_values(1, (_TIOCSTI, _TIOCLINUX)))
    # Socket buffers are kernel memory: zygote.py counts them per socket, at their default size.
    program += _when(_SETSOCKOPT[column], _forbid_values(2, _BUFFER_SIZES))
    program += _when(_PRLIMIT[column], _only(0, 0, _EPERM))
    # The fork server has this filter too, and pins the processes of its program to one CPU.
    program += _when(_SETAFFINITY[column], _forbid_values(0, (1,)) if alone else _only(0, 0, _EPERM))
    # PRIO_PROCESS only: a user id may be shared with other programs.
    single = [_argument(0), _statement(_EQUAL, 0, 1, 0), _statement(_RETURN, _ERRNO | _EPERM)]
    program += _when(_SETPRIORITY[column], single + _only(1, 0, _EPERM))
    if own_signals_only is not None:
        for numbers in _SIGNALS:
            program += _when(numbers[column], _only(0, own_signals_only, _EPERM))
    for pair in _DENIED.values():
        number = pair[column]
        if number is not None and number >= 0:
            program += _when(number, [_statement(_RETURN, _ERRNO | _EPERM)])
    program.append(_statement(_RETURN, _ALLOW))
    return b"".join(program)


def _forbid_bits(index: int, bits: int) -> list[bytes]:
    return [
        _argument(index),
        _statement(_AND, bits),
        _statement(_EQUAL, 0, 0, 1),
        _statement(_RETURN, _ALLOW),
        _statement(_RETURN, _ERRNO | _EPERM),
    ]


def _forbid_values(index: int, values: tuple[int, ...]) -> list[bytes]:
    return [
        _argument(index),
        *(_statement(_EQUAL, value, len(values) - place, 0) for place, value in enumerate(values)),
        _statement(_RETURN, _ALLOW),
        _statement(_RETURN, _ERRNO | _EPERM),
    ]


def install(program: bytes) -> None:
    """Install a filter on this process and its descendants; needs no_new_privs. Raises `OSError`."""
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code)))
    syscalls.prctl(syscalls.PR_SET_SECCOMP, 2, header)
