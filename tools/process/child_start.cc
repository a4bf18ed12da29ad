#include "tools/process/child_start.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>

#include "reference/spec/error.h"

// Sanitizers reserve terabytes of addresses, which RLIMIT_AS would deny.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVCHECK_RESERVES_ADDRESSES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define KVCHECK_RESERVES_ADDRESSES 1
#endif
#endif
#ifndef KVCHECK_RESERVES_ADDRESSES
#define KVCHECK_RESERVES_ADDRESSES 0
#endif

namespace kvcheck {
namespace {

constexpr int kMessageDescriptor = 3;
constexpr int kFailureDescriptor = 4;

[[noreturn]] void ThrowSystemError(std::string_view what) {
  throw Error(ErrorCode::kUnsupported, fmt::format("{}: {}", what, std::strerror(errno)));
}

// Four ends, all closed on exec; the parent's are non-blocking.
struct Ends {
  Descriptor parent_to_child, child_input;
  Descriptor child_output, parent_from_child;
  Descriptor child_printed, parent_printed;
};

void MakeNonBlocking(int descriptor) {
  if (fcntl(descriptor, F_SETFL, O_NONBLOCK) != 0) ThrowSystemError("a pipe cannot be set up");
}

Ends MakeEnds() {
  Ends ends;
  int pair[2];
  // A socket towards the child: writing to a child that is gone must not raise SIGPIPE.
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    ThrowSystemError("no socket can be made for a child process");
  }
  ends.parent_to_child = Descriptor(pair[0]);
  ends.child_input = Descriptor(pair[1]);
  if (pipe2(pair, O_CLOEXEC) != 0) ThrowSystemError("no pipe can be made for a child process");
  ends.parent_from_child = Descriptor(pair[0]);
  ends.child_output = Descriptor(pair[1]);
  if (pipe2(pair, O_CLOEXEC) != 0) ThrowSystemError("no pipe can be made for a child process");
  ends.parent_printed = Descriptor(pair[0]);
  ends.child_printed = Descriptor(pair[1]);
  for (const Descriptor* end :
       {&ends.parent_to_child, &ends.parent_from_child, &ends.parent_printed}) {
    MakeNonBlocking(end->get());
  }
  return ends;
}

// From here on: in the child, where an error has nowhere to go but the exit code.

void CloseFrom(int first) {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, static_cast<unsigned>(first), ~0u, 0u) == 0) return;
#endif
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const auto last = static_cast<int>(std::min<rlim_t>(files.rlim_cur, 65536));
  for (int d = first; d < last; ++d) close(d);
}

void LimitResource(__rlimit_resource resource, int64_t value) {
  const rlimit limit{static_cast<rlim_t>(value), static_cast<rlim_t>(value)};
  setrlimit(resource, &limit);
}

// The soft limit alone: a program that the child starts in its turn has limits of its own.
void LimitAddresses(int64_t bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = std::min(limit.rlim_max, static_cast<rlim_t>(bytes));
  setrlimit(RLIMIT_AS, &limit);
}

void UnlimitAddresses() {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_AS, &limit);
}

// Bytes mapped now: a forked child starts with all that the parent has.
int64_t AddressSpaceInUse() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  long long pages = 0;
  if (file != nullptr) {
    if (std::fscanf(file, "%lld", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * sysconf(_SC_PAGESIZE);
}

// Messages in at 0 and out at 3, or at 1; everything printed to the pipe; `failure`, where there is
// one, at 4 until exec; nothing else open.
void ArrangeDescriptors(const Ends& ends, int failure, ChildStreams streams) {
  // Copies above all targets first: an end could itself lie on one of them.
  const auto above = [](int descriptor) {
    const int copy = fcntl(descriptor, F_DUPFD, 10);
    if (copy < 0) _exit(kChildThrewExitCode);
    return copy;
  };
  const auto place = [](int descriptor, int target) {
    if (dup2(descriptor, target) < 0) _exit(kChildThrewExitCode);
  };
  const int input = above(ends.child_input.get());
  const int output = above(ends.child_output.get());
  const int printed = above(ends.child_printed.get());
  const int kept = failure < 0 ? -1 : above(failure);
  place(input, 0);
  place(streams == ChildStreams::kStandard ? output : printed, 1);
  place(printed, 2);
  // Without messages there it is closed by exec.
  place(streams == ChildStreams::kStandard ? printed : output, kMessageDescriptor);
  if (streams == ChildStreams::kStandard) fcntl(kMessageDescriptor, F_SETFD, FD_CLOEXEC);
  if (kept >= 0) {
    place(kept, kFailureDescriptor);
    fcntl(kFailureDescriptor, F_SETFD, FD_CLOEXEC);
  }
  CloseFrom(kept < 0 ? kMessageDescriptor + 1 : kFailureDescriptor + 1);
}

void BecomeChild(const Ends& ends, const ChildLimits& limits, pid_t parent, int failure,
                 ChildStreams streams) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);  // the parent died before the line above
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD, SIGALRM, SIGXFSZ})
    signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  ArrangeDescriptors(ends, failure, streams);
  LimitResource(RLIMIT_CORE, 0);
  if (limits.cpu_seconds > 0) LimitResource(RLIMIT_CPU, limits.cpu_seconds);
  if (limits.address_space_bytes > 0 && !KVCHECK_RESERVES_ADDRESSES) {
    LimitAddresses(AddressSpaceInUse() + limits.address_space_bytes);
  }
}

[[noreturn]] void RunBody(const std::function<int(ChildChannel&)>& body) {
  int code = kChildThrewExitCode;
  try {
    ChildChannel channel(0, kMessageDescriptor);
    code = body(channel);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  } catch (...) {
    std::fprintf(stderr, "an unknown exception\n");
  }
  std::fflush(nullptr);
  _exit(code);  // not exit: destructors and buffers of the parent's copy are the parent's
}

StartedChild TakeParentEnds(pid_t process, Ends& ends) {
  setpgid(process, process);  // also here: whoever comes first
  StartedChild child;
  child.process = process;
  child.to_child = std::move(ends.parent_to_child);
  child.from_child = std::move(ends.parent_from_child);
  child.printed = std::move(ends.parent_printed);
  return child;
}

}  // namespace

StartedChild StartForked(const std::function<int(ChildChannel&)>& body, const ChildLimits& limits) {
  Ends ends = MakeEnds();
  std::fflush(nullptr);  // or the child would print the parent's buffers again
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process < 0) ThrowSystemError("no child process can be made");
  if (process == 0) {
    BecomeChild(ends, limits, parent, -1, ChildStreams::kMessageDescriptor);
    signal(SIGPIPE, SIG_IGN);  // ChildChannel sees the error instead
    RunBody(body);
  }
  return TakeParentEnds(process, ends);
}

StartedChild StartExecutable(const std::vector<std::string>& arguments, const ChildLimits& limits,
                             ChildStreams streams) {
  KVCHECK_CHECK(!arguments.empty(), "an executable has a name");
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  Ends ends = MakeEnds();
  // Carries errno when exec fails; closed by exec when it succeeds.
  int pair[2];
  if (pipe2(pair, O_CLOEXEC) != 0) ThrowSystemError("no pipe can be made for a child process");
  Descriptor failure_read(pair[0]);
  Descriptor failure_write(pair[1]);
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process < 0) ThrowSystemError("no child process can be made");
  if (process == 0) {
    BecomeChild(ends, limits, parent, failure_write.get(), streams);
    if (limits.address_space_bytes == 0) UnlimitAddresses();
    if (streams == ChildStreams::kMessageDescriptor) {
      setenv("KVCHECK_MESSAGE_FD", fmt::format("{}", kMessageDescriptor).c_str(), 1);
    } else {
      unsetenv("KVCHECK_MESSAGE_FD");
    }
    execvp(argv[0], argv.data());
    const int reason = errno;
    static_cast<void>(!write(kFailureDescriptor, &reason, sizeof reason));
    _exit(kChildThrewExitCode);
  }
  StartedChild child = TakeParentEnds(process, ends);
  failure_write.Close();
  int reason = 0;
  ssize_t got;
  while ((got = read(failure_read.get(), &reason, sizeof reason)) < 0 && errno == EINTR) {
  }
  if (got == sizeof reason) {
    while (waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
    }
    throw Error(ErrorCode::kUnsupported,
                fmt::format("'{}' cannot be executed: {}", arguments[0], std::strerror(reason)));
  }
  return child;
}

std::vector<pid_t> KillGroupsBelow(pid_t process) {
  std::vector<pid_t> killed;
  std::FILE* file =
      std::fopen(fmt::format("/proc/{}/task/{}/children", process, process).c_str(), "re");
  if (file == nullptr) return killed;
  int child = 0;
  while (std::fscanf(file, "%d", &child) == 1) {
    if (child <= 0 || getpgid(child) != child) continue;
    kill(-child, SIGKILL);
    killed.push_back(child);
  }
  std::fclose(file);
  return killed;
}

void RemoveAdapterFolders(const std::vector<pid_t>& processes) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path place = fs::temp_directory_path(error);
  if (error) return;
  std::vector<fs::path> left;
  for (fs::directory_iterator it(place, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with("kvcheck-adapter-")) continue;
    const bool is_theirs = std::any_of(processes.begin(), processes.end(), [&](pid_t process) {
      return name.starts_with(fmt::format("kvcheck-adapter-{}-", process));
    });
    if (is_theirs) left.push_back(it->path());
  }
  for (const fs::path& path : left) fs::remove_all(path, error);
}

}  // namespace kvcheck
