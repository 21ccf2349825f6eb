/* A jail by ptrace: a filter stops openat(2) for the tracer, which refuses each. Prints how the
   open of FILE with O_SYNC ended. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static void jailed(const char *file)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { 4, code };

	ptrace(PTRACE_TRACEME, 0, 0, 0);
	raise(SIGSTOP);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(3);
	_exit(syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_SYNC, 0600) < 0 ? 0 : 1);
}

int main(int count, char **words)
{
	struct user_regs_struct registers;
	int status;
	pid_t child = fork();

	if (child == 0)
		jailed(words[count - 1]);
	waitpid(child, &status, 0);
	ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL);
	for (;;) {
		ptrace(PTRACE_CONT, child, 0, 0);
		waitpid(child, &status, 0);
		if (WIFEXITED(status))
			break;
		if (status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8)) {
			ptrace(PTRACE_GETREGS, child, 0, &registers);
			registers.orig_rax = -1;
			registers.rax = -EPERM;
			ptrace(PTRACE_SETREGS, child, 0, &registers);
		}
	}
	puts(WEXITSTATUS(status) == 0 ? "refused" : WEXITSTATUS(status) == 1 ? "escaped" : "failed");
	return 0;
}
