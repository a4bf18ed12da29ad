// A child process whose crash, hang or nonsense is a value. It sends messages; the parent waits for
// each no longer than a limit since the last progress, so that a long job that moves is not killed
// and a job that loops is. Time in which the parent is suspended is not counted. Serves files of
// unknown origin, workers of `fuzz` and `gate`, and strangers' implementations.
//
// Messages in both directions: 8 bytes of length, little endian, then that many bytes. A length of
// 0 is no message but a sign of progress. A forked child uses a ChildChannel; an executable reads
// messages from its standard input and writes them either to the descriptor whose number is in the
// environment variable KVCHECK_MESSAGE_FD or to its standard output. What the child prints is kept
// apart from the parent's: the last lines come with the outcome.

#ifndef TOOLS_PROCESS_SUPERVISED_CHILD_H_
#define TOOLS_PROCESS_SUPERVISED_CHILD_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvcheck {

using Message = std::vector<std::byte>;

struct ChildLimits {
  std::chrono::milliseconds since_progress{10'000};
  // Beyond what the child starts with; 0: no limit. Ignored under AddressSanitizer and
  // ThreadSanitizer, which reserve terabytes.
  int64_t address_space_bytes = 0;
  int64_t cpu_seconds = 0;  // 0: no limit
  // A child that announces a longer message breaks the protocol.
  int64_t max_message_bytes = int64_t{64} << 20;
  // From the start of a wait to the message, signs of progress or not; 0: as long as there are
  // some.
  std::chrono::milliseconds whole_wait{0};
  // Called while the parent waits for a message or for the child to read one, at least every 50 ms.
  // What it throws passes through.
  std::function<void()> on_wait;
  // Called with the child's number once it is gone: to remove what one that was killed has left.
  std::function<void(int)> on_end;
};

// Where an executable writes its messages.
enum class ChildStreams {
  kMessageDescriptor,  // KVCHECK_MESSAGE_FD; standard output and error are printed
  kStandard,           // standard output; standard error is printed
};

enum class ChildEnd {
  kExited,         // by itself; code is its exit code
  kSignalled,      // code is the signal
  kTimedOut,       // no progress within the limit; killed
  kProtocolError,  // what it sent is no message; killed
  kStopped,        // the parent wanted no more; killed
};

struct ChildOutcome {
  ChildEnd end = ChildEnd::kExited;
  int code = 0;
  std::string detail;       // of kTimedOut and kProtocolError, for a message
  std::string stderr_tail;  // the last lines that it printed

  bool Succeeded() const { return end == ChildEnd::kExited && code == 0; }
};

// "exited with code 3", "crashed (signal 11, Segmentation fault)", "made no progress for 2 s".
std::string ToString(const ChildOutcome& outcome);

// The exit code of a forked child whose body threw.
inline constexpr int kChildThrewExitCode = 125;

// The child's end, in a forked child. When the parent is gone, the child exits.
class ChildChannel {
 public:
  ChildChannel(int read_descriptor, int write_descriptor)
      : read_descriptor_(read_descriptor), write_descriptor_(write_descriptor) {}

  // Precondition: the message is not empty.
  void Send(std::span<const std::byte> message);
  // Says that work goes on. Cheap: at most one in 10 ms is sent.
  void Progress();
  // The next message from the parent; nullopt when there will be none.
  std::optional<Message> Receive();

 private:
  int read_descriptor_;
  int write_descriptor_;
  std::chrono::steady_clock::time_point last_sign_{};
};

// Runs from construction to Finish(), or to the destructor, which kills the child and reaps it. The
// child lives no longer than the thread that started it. Not for use from several threads.
class SupervisedChild {
 public:
  // Forks; the child runs `body` and exits with its result, or with kChildThrewExitCode when it
  // throws. It has copies of everything in memory and none of the parent's open files. Where the
  // parent has other threads, the body may use only what survives a fork (malloc does).
  // Errors: kUnsupported when no process can be made.
  SupervisedChild(const std::function<int(ChildChannel&)>& body, const ChildLimits& limits);
  // Runs a program found by PATH. Errors: kUnsupported when it cannot be started.
  SupervisedChild(const std::vector<std::string>& arguments, const ChildLimits& limits,
                  ChildStreams streams = ChildStreams::kMessageDescriptor);
  ~SupervisedChild();
  SupervisedChild(const SupervisedChild&) = delete;
  SupervisedChild& operator=(const SupervisedChild&) = delete;

  // False when the child has ended or ends meanwhile. While it writes, it goes on reading, so that
  // two long messages do not wait for each other; accepting bytes counts as progress.
  bool Send(std::span<const std::byte> message);
  // The same, of a message that has its header before it.
  bool SendFrame(std::span<const std::byte> frame);
  // From the next call on.
  void SetLimits(std::chrono::milliseconds since_progress, std::chrono::milliseconds whole_wait);
  // Whether it is known to be gone.
  bool HasEnded() const;
  // Takes in what has arrived, without waiting.
  void Look();
  // Whether something has arrived that nobody has taken, a part of a message or more.
  bool HasUntaken() const { return Untaken() > 0; }
  // How many: messages, and one more where a part of another is there.
  size_t Untaken() const;
  // The next message; nullopt when there is none any more: Finish() says why. The limit starts at
  // the call: time in which the parent was busy elsewhere is not counted.
  std::optional<Message> Receive();
  // The index of the first child that has a message or has ended; nullopt when none has within
  // `longest`. What is not idle runs against its limit, which starts at its last progress or Send;
  // time in which the parent was busy elsewhere, between two of these calls, is not counted.
  static std::optional<size_t> WaitAny(std::span<SupervisedChild* const> children,
                                       std::chrono::milliseconds longest);
  // A message that has arrived, without waiting.
  std::optional<Message> TakeArrived();
  // Tells the child that no message follows, waits for its end (messages are dropped), reaps it.
  const ChildOutcome& Finish();
  // Kills it where it is.
  const ChildOutcome& Stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Runs a body to its end and gives its messages to a function; what that throws passes through,
// after the child is killed.
ChildOutcome RunSupervised(const std::function<int(ChildChannel&)>& body, const ChildLimits& limits,
                           const std::function<void(const Message&)>& on_message = {});

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_SUPERVISED_CHILD_H_
