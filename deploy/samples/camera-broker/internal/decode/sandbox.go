package decode

import (
	"fmt"
	"os"
	"slices"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// maxMemory limits the data of the child. A frame with 3,840 x 2,160 pixels needs 12 MiB, and the
// decoder keeps up to 17.
const maxMemory = 512 << 20

// calls are the system calls that the Go runtime and a decoder need: memory, threads, time,
// signals, and the open pipes. Without open, socket and exec the decoder cannot reach the files and
// the network of its Pod, however a camera has deceived it.
var calls = []string{
	"read", "write", "close", "exit", "exit_group", "restart_syscall",
	"mmap", "mmap2", "munmap", "mremap", "mprotect", "madvise", "brk",
	"futex", "futex_time64", "clone", "clone3", "set_robust_list", "rseq", "sched_yield", "sched_getaffinity", "gettid", "getpid",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigreturn", "sigaltstack",
	"clock_gettime", "clock_gettime64", "gettimeofday", "nanosleep", "clock_nanosleep", "clock_nanosleep_time64",
	"epoll_pwait", "epoll_wait", "epoll_ctl", "getrandom",
}

// sandbox gives up all other system calls of this process. They fail with EPERM.
func sandbox() error {
	// The kernel ends the decoder instead of the broker if the Pod exceeds its memory limit.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return fmt.Errorf("prefer this process when memory is short: %w", err)
	}
	limit := unix.Rlimit{Cur: maxMemory, Max: maxMemory}
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &limit); err != nil {
		return fmt.Errorf("limit memory: %w", err)
	}
	processor, err := arch.GetInfo("")
	if err != nil {
		return fmt.Errorf("system calls of this processor: %w", err)
	}
	known := slices.DeleteFunc(slices.Clone(calls), func(name string) bool { _, ok := processor.SyscallNames[name]; return !ok })
	return seccomp.LoadFilter(seccomp.Filter{
		NoNewPrivs: true, Flag: seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{DefaultAction: seccomp.ActionErrno, Syscalls: []seccomp.SyscallGroup{
			{Action: seccomp.ActionAllow, Names: known},
			// The Go runtime signals its own threads.
			{Action: seccomp.ActionAllow, NamesWithCondtions: []seccomp.NameWithConditions{{
				Name:       "tgkill",
				Conditions: []seccomp.Condition{{Argument: 0, Operation: seccomp.Equal, Value: uint64(os.Getpid())}},
			}}},
		}},
	})
}
