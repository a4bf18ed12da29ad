#include "tools/process/remote_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "reference/spec/cache_implementation.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

// The last lines that it printed, on one line.
std::string Printed(const ChildOutcome& outcome) {
  constexpr size_t kLines = 4;
  std::vector<std::string> lines;
  std::string_view text = outcome.stderr_tail;
  while (!text.empty() && lines.size() < kLines) {
    const size_t end = text.rfind('\n');
    const std::string_view line = end == std::string_view::npos ? text : text.substr(end + 1);
    if (line.find_first_not_of(" \r\t") != std::string_view::npos) {
      lines.push_back(CleanText(line, 300));
    }
    text = end == std::string_view::npos ? std::string_view() : text.substr(0, end);
  }
  std::string printed;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    printed += (printed.empty() ? "; it printed: " : " | ") + *line;
  }
  return printed;
}

}  // namespace

Outcome RemoteLoss::outcome() const {
  if (kind() == LossKind::kCrashed) return Outcome::kCrashed;
  if (kind() == LossKind::kNoRoom) return Outcome::kMistrusted;
  return kind() == LossKind::kTimedOut ? Outcome::kTimedOut : Outcome::kFail;
}

RemoteProcess::RemoteProcess(std::vector<std::string> command, const RemoteLimits& limits,
                             std::optional<Greeting> greeting)
    : command_(std::move(command)), limits_(limits), greeting_(std::move(greeting)) {
  KVCHECK_CHECK(!command_.empty(), "a command has a name");
}

RemoteProcess::~RemoteProcess() = default;

void RemoteProcess::SetLimits(const RemoteLimits& limits) {
  limits_ = limits;
  if (child_ != nullptr) {
    child_->SetLimits(limits.since_progress, limits.since_progress * kWholeWaitLimits);
  }
}

void RemoteProcess::Lose(LossKind kind, const std::string& reason) {
  child_ = nullptr;
  const RemoteLoss loss(kind, request_, reason);
  const bool unclear = ahead_.Used() && kind == LossKind::kBrokeProtocol;
  ahead_.Clear();
  if (unclear) throw RehearsedOtherwise(std::make_exception_ptr(loss));
  throw loss;
}

void RemoteProcess::Break(const std::string& reason) {
  Lose(LossKind::kBrokeProtocol,
       fmt::format("the answer to '{}' breaks the protocol: {}", request_, reason));
}

void RemoteProcess::LoseChild() {
  const ChildOutcome& outcome = child_->Finish();
  const std::string reason =
      fmt::format("the process {} in '{}'{}", ToString(outcome), request_, Printed(outcome));
  switch (outcome.end) {
    case ChildEnd::kTimedOut:
      Lose(LossKind::kTimedOut, reason);
    case ChildEnd::kProtocolError:
      Lose(LossKind::kBrokeProtocol, reason);
    default:
      Lose(LossKind::kCrashed, reason);
  }
}

void RemoteProcess::Start() {
  if (child_ != nullptr) return;
  if (failed_starts_ >= kMostFailedStarts) {
    throw RemoteLoss(last_failed_start_->kind(), last_failed_start_->request(),
                     fmt::format("{} (the last of {} processes that failed to greet, one after the "
                                 "other: none is started any more)",
                                 last_failed_start_->reason(), kMostFailedStarts));
  }
  try {
    const Greeting greeting = Greet();
    if (greeting_ && !(greeting == *greeting_)) {
      Break("the process says something else about itself than the one before it");
    }
    greeting_ = greeting;
    failed_starts_ = 0;
  } catch (const RemoteLoss& loss) {
    ++failed_starts_;
    last_failed_start_ = loss;
    throw;
  }
}

const Greeting& RemoteProcess::greeting() {
  if (!greeting_) Start();
  return *greeting_;
}

Greeting RemoteProcess::Greet() {
  request_ = "hello";
  ChildLimits limits;
  limits.since_progress = limits_.greeting;
  limits.whole_wait = limits_.greeting * kWholeGreetingLimits;
  limits.max_message_bytes = kMaxFrameBytes;
  limits.on_wait = [this] {
    if (limits_.on_wait) limits_.on_wait();
  };
  ++epoch_;
  try {
    child_ = std::make_unique<SupervisedChild>(command_, limits, ChildStreams::kStandard);
  } catch (const Error& error) {
    throw RemoteLoss(LossKind::kCrashed, request_, error.message());
  }
  writer_.StartFrame();
  writer_.StartMap();
  writer_.Key("do");
  writer_.Text(request_);
  writer_.Key("protocol");
  writer_.Integer(kProtocolVersion);
  writer_.Key("kvcheck");
  writer_.Text(KVCHECK_VERSION);
  const WireValue answer = Call();
  const Greeting greeting = Interpret([&] { return ReadGreeting(answer); });
  child_->SetLimits(limits_.since_progress, limits_.since_progress * kWholeWaitLimits);
  return greeting;
}

WireWriter& RemoteProcess::Begin(std::string_view request) {
  Start();
  request_ = request;
  writer_.StartFrame();
  writer_.StartMap();
  writer_.Key("do");
  writer_.Text(request);
  return writer_;
}

void RemoteProcess::CheckFrame() const {
  if (writer_.size() <= kMaxFrameBytes) return;
  throw Error(ErrorCode::kUnsupported,
              fmt::format("'{}' needs {} bytes, and a frame of the process protocol has {} at "
                          "most: make the case smaller",
                          request_, writer_.size(), kMaxFrameBytes));
}

WireValue RemoteProcess::Call() {
  writer_.EndMap();
  CheckFrame();
  ++calls_;
  try {
    return Exchange();
  } catch (const RemoteLoss&) {
    throw;
  } catch (const RehearsedOtherwise&) {
    throw;
  } catch (const WireError& error) {
    Break(error.what());
  } catch (...) {
    // Interrupted: what the process is doing is of no use to anybody.
    child_ = nullptr;
    throw;
  }
}

void RemoteProcess::CallAndKill(std::chrono::microseconds after) {
  writer_.EndMap();
  CheckFrame();
  ++calls_;
  // What ends meanwhile has not answered either.
  static_cast<void>(child_->SendFrame(writer_.FinishFrame()));
  std::this_thread::sleep_for(after);
  End(/*orderly=*/false);
}

void RemoteProcess::End(bool orderly) {
  if (child_ == nullptr) return;
  orderly ? child_->Finish() : child_->Stop();
  child_ = nullptr;
  ahead_.Clear();
}

void RemoteProcess::BeginAhead() {
  ForgetAhead();
  Start();
}

bool RemoteProcess::Announce() {
  writer_.EndMap();
  ++calls_;
  if (ahead_.Full()) return false;
  ahead_.Add(writer_.FinishFrame());
  return true;
}

bool RemoteProcess::ForgetAhead() {
  size_t left = ahead_.Unanswered();
  ahead_.Clear();
  if (left == 0 || child_ == nullptr) return true;
  try {
    while (left > 0 && child_->Receive()) --left;
  } catch (...) {
    child_ = nullptr;
    throw;
  }
  const bool as_many = left == 0 && !child_->HasUntaken();
  if (!as_many) child_ = nullptr;
  return as_many;
}

void RemoteProcess::LetAnswersGather() {
  constexpr size_t kFew = 3;
  constexpr std::chrono::nanoseconds kMost = std::chrono::milliseconds(2);
  if (ahead_.Unanswered() < kFew || child_->HasUntaken()) return;
  const auto estimate = answer_time_ * static_cast<int64_t>(ahead_.Unanswered()) / 2;
  std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(kMost, estimate));
}

WireValue RemoteProcess::Exchange() {
  const std::span<const std::byte> frame = writer_.FinishFrame();
  if (ahead_.Unanswered() == 0) {
    // An answer that comes now belongs to no request: it would be taken for the next one's.
    child_->Look();
    if (child_->HasUntaken()) Break("it sent more than one answer to an earlier request");
  }
  bool sent = true;
  const bool announced = ahead_.Any() && ahead_.IsNext(frame);
  if (announced) {
    if (!ahead_.Used()) ahead_since_ = std::chrono::steady_clock::now();
    if (const auto more = ahead_.Send(); !more.empty()) sent_all_ = child_->SendFrame(more);
    if (sent_all_) LetAnswersGather();
    // What did not read all of them may have answered this one.
    sent = sent_all_;
    ahead_.Take();
  } else if (ahead_.Unanswered() > 0) {
    ForgetAhead();
    throw RehearsedOtherwise();
  } else {
    ahead_.DropRest();
    sent = sent_all_ = child_->SendFrame(frame);
  }
  std::optional<Message> message;
  if (sent || child_->HasUntaken()) message = child_->Receive();
  if (!message && !sent) {
    // It is ending, or it stopped to listen, or it was ended since it took nothing.
    const bool listened = child_->HasEnded();
    const ChildOutcome& outcome = child_->Finish();
    if (outcome.end == ChildEnd::kTimedOut && !listened) {
      Lose(LossKind::kBrokeProtocol,
           fmt::format("the process closed its standard input and did not end, in '{}'{}", request_,
                       Printed(outcome)));
    }
  }
  if (!message) LoseChild();
  if (child_->Untaken() > ahead_.Unanswered()) Break("it sent more than one answer");
  if (announced && !ahead_.Any()) {
    answer_time_ =
        (std::chrono::steady_clock::now() - ahead_since_) / static_cast<int64_t>(ahead_.Taken());
  }
  answer_bytes_ = std::make_shared<const Message>(std::move(*message));
  const WireValue answer = reader_.Read(*answer_bytes_);
  if (const std::optional<WireValue> no_room = answer.Find("no_room")) {
    const std::string said = CleanText(no_room->AsText("'no_room'"), 300);
    if (answer.Find("failed") || answer.Find("refused")) {
      Lose(LossKind::kNoRoom,
           fmt::format("no room on the disk in '{}', says the adapter: {}; make room there (TMPDIR "
                       "names kvcheck's own folder), and ask again",
                       request_, said));
    }
    no_room_ = said;
  }
  if (const std::optional<WireValue> failed = answer.Find("failed")) {
    Lose(LossKind::kCrashed, fmt::format("the adapter failed in '{}': {}", request_,
                                         CleanText(failed->AsText("'failed'"), 2000)));
  }
  return answer;
}

}  // namespace kvcheck
