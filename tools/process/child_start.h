// Starting a supervised child: its descriptors, its limits, and what it does first.

#ifndef TOOLS_PROCESS_CHILD_START_H_
#define TOOLS_PROCESS_CHILD_START_H_

#include <sys/types.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tools/process/supervised_child.h"

namespace kvcheck {

// An open file, closed by its owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      Close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }

  int get() const { return number_; }
  bool open() const { return number_ >= 0; }
  void Close() {
    if (number_ >= 0) close(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

// The parent's view of a child just started. The child leads a process group of its own, and is
// killed when the thread that started it ends.
struct StartedChild {
  pid_t process = -1;
  Descriptor to_child;    // a socket, non-blocking
  Descriptor from_child;  // a pipe, non-blocking
  Descriptor printed;     // what the child prints, non-blocking
};

// Errors: kUnsupported when the system gives no process or descriptor.
StartedChild StartForked(const std::function<int(ChildChannel&)>& body, const ChildLimits& limits);
// Errors: kUnsupported, also when the program cannot be executed.
StartedChild StartExecutable(const std::vector<std::string>& arguments, const ChildLimits& limits,
                             ChildStreams streams);

// Kills the groups that children of the process lead: a worker that is killed cannot end what it
// has started in its turn. The system kills the leaders with the worker, but not what they have
// started.
// Returns the leaders.
std::vector<pid_t> KillGroupsBelow(pid_t process);

// Removes what adapters keep for saved states and could not remove, as they were killed: folders of
// temporary files that are named kvcheck-adapter-PID-*, after these processes.
void RemoveAdapterFolders(const std::vector<pid_t>& processes);

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_CHILD_START_H_
