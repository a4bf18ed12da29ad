// A stranger's implementation in a process of its own, spoken to over the process protocol
// (protocol.md): requests and answers, the greeting, and a new process in place of one that was
// lost. A loss is no error of the harness but what the case came to: it is thrown as a RemoteLoss,
// which whoever judges the case turns into its outcome.

#ifndef TOOLS_PROCESS_REMOTE_PROCESS_H_
#define TOOLS_PROCESS_REMOTE_PROCESS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/judge/verdict.h"
#include "reference/spec/implementation_loss.h"
#include "tools/process/remote_greeting.h"
#include "tools/process/requests_ahead.h"
#include "tools/process/supervised_child.h"
#include "tools/process/wire_message.h"
#include "tools/process/wire_writer.h"

namespace kvcheck {

inline constexpr int64_t kMaxFrameBytes = int64_t{64} << 20;
// An answer takes no longer than so many limits, whatever signs of progress are given.
inline constexpr int kWholeWaitLimits = 20;
// So does a greeting, which may import a library or load a model in the meantime: three times what
// the slowest one here takes on a busy machine (SGLang, up to 3 minutes).
inline constexpr int kWholeGreetingLimits = 10;
// Whose processes failed to greet so often, one after the other, is not started again.
inline constexpr int kMostFailedStarts = 3;

struct RemoteLimits {
  std::chrono::milliseconds since_progress{10'000};
  std::chrono::milliseconds greeting{60'000};
  // Called while an answer is waited for, at least every 50 ms; what it throws passes through,
  // after the process is ended.
  std::function<void()> on_wait{};
};

class RemoteLoss : public ImplementationLoss {
 public:
  using ImplementationLoss::ImplementationLoss;
  // kCrashed, kTimedOut; kFail: broke the protocol.
  Outcome outcome() const;
};

class RemoteProcess {
 public:
  // Starts nothing yet. greeting: as a process of this command gave it before; each one that is
  // started must give the same.
  RemoteProcess(std::vector<std::string> command, const RemoteLimits& limits,
                std::optional<Greeting> greeting = {});
  ~RemoteProcess();
  RemoteProcess(const RemoteProcess&) = delete;
  RemoteProcess& operator=(const RemoteProcess&) = delete;

  // From the next request, or start, on.
  void SetLimits(const RemoteLimits& limits);
  // Starts a process where there is none. Errors: RemoteLoss.
  void Start();
  // Errors: RemoteLoss, where it has to start a process to learn it.
  const Greeting& greeting();
  // Why it could not write something to a disk, as an answer said since the last ForgetNoRoom.
  const std::string& no_room() const { return no_room_; }
  void ForgetNoRoom() { no_room_.clear(); }
  // Changes with each process: what was made in an earlier one is gone.
  int64_t epoch() const { return epoch_; }
  bool running() const { return child_ != nullptr; }

  // A request: Begin, then Key and value of what it needs, then Call. Starts a process where there
  // is none. Errors: RemoteLoss.
  WireWriter& Begin(std::string_view request);
  // Sends it and gives the answer, valid until the next call; its bytes stay with the message.
  // Errors: RemoteLoss; kUnsupported for a request that no frame holds: nothing was sent.
  WireValue Call();
  // Sends it, and kills the process after so long: no answer is read. Errors: kUnsupported, as
  // Call.
  void CallAndKill(std::chrono::microseconds after);
  // Ends the process: orderly, at the end of its standard input, or where it is. The next request
  // starts another one.
  void End(bool orderly);
  // Requests ahead of their answers: from BeginAhead on, Begin and Announce keep requests, which
  // the next calls of Begin and Call are then expected to be. They are sent together with the
  // first. Call throws RehearsedOtherwise, after the answers on their way are dropped, where one
  // that was sent is not the next; and in place of a RemoteLoss for a broken protocol, because then
  // it is not known which request was answered badly. Errors: RemoteLoss, as Start.
  void BeginAhead();
  // False: it is not kept, and none that follows should be.
  bool Announce();
  // Drops what was announced and did not come to its turn. False: the answers that were on their
  // way are not as many as the requests, and the process is ended.
  bool ForgetAhead();

  // Of the request that was begun.
  WireWriter& writer() { return writer_; }
  std::shared_ptr<const Message> answer_bytes() const { return answer_bytes_; }
  // Requests so far.
  int64_t calls() const { return calls_; }
  // What reads an answer: a WireError of it is a loss.
  template <typename F>
  auto Interpret(F f) {
    try {
      return f();
    } catch (const WireError& error) {
      Break(error.what());
    }
  }
  // Ends the process, which broke the protocol. Throws RemoteLoss.
  [[noreturn]] void Break(const std::string& reason);

 private:
  [[noreturn]] void Lose(LossKind kind, const std::string& reason);
  [[noreturn]] void LoseChild();
  Greeting Greet();
  WireValue Exchange();
  void CheckFrame() const;  // Errors: kUnsupported
  // Where several answers are on their way: until some of them are there.
  void LetAnswersGather();

  std::vector<std::string> command_;
  RemoteLimits limits_;
  std::optional<Greeting> greeting_;
  std::unique_ptr<SupervisedChild> child_;
  int64_t epoch_ = 0;
  int64_t calls_ = 0;
  int failed_starts_ = 0;
  std::optional<RemoteLoss> last_failed_start_;
  std::string request_;
  std::string no_room_;
  WireWriter writer_;
  RequestsAhead ahead_;
  bool sent_all_ = true;  // the last piece that was sent was read as a whole
  // Of answers to requests sent ahead: when those on their way began, and what one takes.
  std::chrono::steady_clock::time_point ahead_since_;
  std::chrono::nanoseconds answer_time_{0};
  WireMessage reader_;
  std::shared_ptr<const Message> answer_bytes_;
};

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_REMOTE_PROCESS_H_
