#include "tools/process/supervised_child.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <thread>
#include <utility>

#include "reference/spec/error.h"
#include "tools/process/attended_clock.h"
#include "tools/process/child_start.h"
#include "tools/process/message_frame.h"

namespace kvcheck {
namespace {

using Clock = AttendedClock;

constexpr size_t kStderrTailBytes = 4096;
// How long a wait lasts before the child itself is looked at: one whose grandchild holds the pipe
// open ends without the pipe's end being seen.
constexpr std::chrono::milliseconds kLookInterval{50};

}  // namespace

struct SupervisedChild::State {
  ChildLimits limits;
  StartedChild child;
  bool reaped = false;
  bool ended = false;  // outcome is set
  ChildOutcome outcome;
  Clock::time_point deadline;
  Clock::time_point watched;                     // when the deadline was last looked at, or set
  std::optional<Clock::time_point> last_moment;  // of the wait that goes on, where it is bounded
  // What arrived and is not yet a message: a header and a payload, both perhaps partial.
  FrameHeader header;
  size_t header_filled = 0;
  Message payload;
  size_t payload_length = 0;
  std::deque<Message> arrived;
  size_t arrived_bytes = 0;

  ~State() {
    if (!ended) End(ChildEnd::kStopped, 0, "");
  }

  Clock::time_point Now() const { return Clock::OfChild(static_cast<int>(child.process)); }

  void Renew() {
    watched = Now();
    deadline = watched + limits.since_progress;
  }

  void BoundWait() {
    if (limits.whole_wait.count() > 0) last_moment = watched + limits.whole_wait;
  }

  // Kills what is left of the child's group and reaps the child. The first end stays.
  void End(ChildEnd end, int code, std::string detail) {
    child.to_child.Close();
    std::vector<pid_t> killed;
    if (!reaped) {
      killed = KillGroupsBelow(child.process);
      kill(child.process, SIGKILL);
      int status = 0;
      Collect(status);
    }
    if (end != ChildEnd::kExited) {
      killed.push_back(child.process);
      RemoveAdapterFolders(killed);
    }
    ReadPrinted();
    child.from_child.Close();
    child.printed.Close();
    outcome.end = end;
    outcome.code = code;
    outcome.detail = std::move(detail);
    ended = true;
  }

  void ReadPrinted() {
    char buffer[4096];
    // A child that prints without end must not keep the parent here.
    for (int i = 0; i < 64 && child.printed.open(); ++i) {
      const ssize_t got = read(child.printed.get(), buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got == 0) child.printed.Close();
      if (got <= 0) break;
      outcome.stderr_tail.append(buffer, static_cast<size_t>(got));
      if (outcome.stderr_tail.size() > 2 * kStderrTailBytes) {
        outcome.stderr_tail.erase(0, outcome.stderr_tail.size() - kStderrTailBytes);
      }
    }
    if (outcome.stderr_tail.size() > kStderrTailBytes) {
      outcome.stderr_tail.erase(0, outcome.stderr_tail.size() - kStderrTailBytes);
    }
  }

  // Takes bytes into messages. False when they break the protocol; then the child has ended.
  bool Take(const std::byte* data, size_t size) {
    while (size > 0) {
      if (header_filled < header.size()) {
        const size_t part = std::min(size, header.size() - header_filled);
        std::copy_n(data, part, header.begin() + static_cast<std::ptrdiff_t>(header_filled));
        header_filled += part;
        data += part;
        size -= part;
        if (header_filled < header.size()) return true;
        const uint64_t length = DecodeFrameHeader(header);
        if (length == 0) {
          header_filled = 0;
          Renew();
        } else if (length > static_cast<uint64_t>(limits.max_message_bytes)) {
          End(ChildEnd::kProtocolError, 0,
              fmt::format("announced a message of {} bytes, at most {} are allowed{}", length,
                          limits.max_message_bytes, PrintedText(header)));
          return false;
        }
        payload_length = length;
        continue;
      }
      const size_t part = std::min(size, payload_length - payload.size());
      // Grows with what arrives, not with what was announced.
      payload.insert(payload.end(), data, data + part);
      data += part;
      size -= part;
      if (payload.size() < payload_length) return true;
      arrived_bytes += payload.size();
      arrived.push_back(std::exchange(payload, {}));
      header_filled = 0;
      Renew();
    }
    return true;
  }

  // Reads what is there. False at the end of the stream, or when the child has been ended.
  bool ReadMessages() {
    std::byte buffer[65536];
    for (int i = 0; i < 16; ++i) {
      const ssize_t got = read(child.from_child.get(), buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
      if (got <= 0) return false;
      if (!Take(buffer, static_cast<size_t>(got))) return false;
      if (got < static_cast<ssize_t>(sizeof buffer)) return true;
    }
    return true;
  }

  // True when the child is gone; then its status is known.
  bool Reap(int& status) {
    siginfo_t info{};
    const int got =
        waitid(P_PID, static_cast<id_t>(child.process), &info, WEXITED | WNOHANG | WNOWAIT);
    if (got != 0 || info.si_pid != child.process) return false;
    Collect(status);
    return true;
  }

  void Collect(int& status) {
    // Grandchildren, while the child's number cannot yet be given to another process.
    kill(-child.process, SIGKILL);
    while (waitpid(child.process, &status, 0) < 0 && errno == EINTR) {
    }
    reaped = true;
    if (limits.on_end) limits.on_end(static_cast<int>(child.process));
  }

  void EndByStatus(int status) {
    if (WIFSIGNALED(status)) return End(ChildEnd::kSignalled, WTERMSIG(status), "");
    const int code = WEXITSTATUS(status);
    if (code == 0 && header_filled > 0) {
      return End(ChildEnd::kProtocolError, 0, "ended within a message");
    }
    End(ChildEnd::kExited, code, "");
  }

  // The stream of messages is over: waits for the child to end, within the limit.
  void WaitForEnd() {
    int status = 0;
    auto pause = std::chrono::microseconds(50);
    while (!Reap(status)) {
      ReadPrinted();
      if (Now() >= deadline) return TimeOut();
      if (limits.on_wait) limits.on_wait();
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(10'000));
    }
    EndByStatus(status);
  }

  void TimeOut() {
    End(ChildEnd::kTimedOut, 0,
        fmt::format("made no progress for {:.1f} s",
                    std::chrono::duration<double>(limits.since_progress).count()));
  }

  // Waits until something happens, at most until the deadline, and takes it. `to_send` is what
  // remains to be written; true when some of it was.
  void Step(std::span<const std::byte>* to_send,
            std::chrono::milliseconds longest = kLookInterval) {
    pollfd files[3] = {{child.from_child.get(), POLLIN, 0},
                       {child.printed.get(), POLLIN, 0},
                       {to_send != nullptr ? child.to_child.get() : -1, POLLOUT, 0}};
    const auto now = Now();
    if (now >= deadline) {
      // A sign that has arrived counts: perhaps it is the parent that was slow.
      ReadMore();
      if (!ended && now >= deadline) TimeOut();
      return;
    }
    if (last_moment && now >= *last_moment) {
      return End(ChildEnd::kTimedOut, 0,
                 fmt::format("gave signs of progress and no answer for {:.1f} s",
                             std::chrono::duration<double>(limits.whole_wait).count()));
    }
    if (limits.on_wait) limits.on_wait();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
    const int wait = static_cast<int>(std::min(left, longest).count());
    const int ready = poll(files, 3, wait);
    if (ready < 0 && errno != EINTR) return End(ChildEnd::kStopped, 0, "");
    if (ready <= 0) {
      int status = 0;
      if (!Reap(status)) return;
      // What it sent before it ended is still in the pipe.
      while (!ended && ReadMore()) {
      }
      if (!ended) EndByStatus(status);
      return;
    }
    if (files[1].revents != 0) ReadPrinted();
    if (files[0].revents != 0 && !ReadMessages()) {
      if (!ended) WaitForEnd();
      return;
    }
    if (to_send != nullptr && files[2].revents != 0) Write(*to_send);
  }

  // Reads until the pipe is empty; false when it is.
  bool ReadMore() {
    pollfd file = {child.from_child.get(), POLLIN, 0};
    return poll(&file, 1, 0) > 0 && (file.revents & POLLIN) != 0 && ReadMessages();
  }

  void Write(std::span<const std::byte>& data) {
    const ssize_t written =
        send(child.to_child.get(), data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written > 0) {
      data = data.subspan(static_cast<size_t>(written));
      Renew();
    } else if (written < 0 && errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
      // It closed its input: it is ending, or will be found out by the limit.
      child.to_child.Close();
    }
  }

  bool SendAll(std::span<const std::byte> data) {
    // Messages that pile up while the child does not read are bounded like a message.
    const auto most = 2 * static_cast<size_t>(limits.max_message_bytes);
    BoundWait();
    if (!data.empty() && child.to_child.open()) Write(data);
    while (!data.empty() && !ended && child.to_child.open()) {
      Step(&data);
      if (!ended && arrived_bytes > most) {
        End(ChildEnd::kProtocolError, 0, "sends without reading what it is sent");
      }
    }
    last_moment.reset();
    return data.empty();
  }
};

SupervisedChild::SupervisedChild(const std::function<int(ChildChannel&)>& body,
                                 const ChildLimits& limits)
    : state_(std::make_unique<State>()) {
  state_->limits = limits;
  state_->reaped = state_->ended = true;  // nothing to reap if starting throws
  state_->child = StartForked(body, limits);
  state_->reaped = state_->ended = false;
  state_->Renew();
}

SupervisedChild::SupervisedChild(const std::vector<std::string>& arguments,
                                 const ChildLimits& limits, ChildStreams streams)
    : state_(std::make_unique<State>()) {
  state_->limits = limits;
  state_->reaped = state_->ended = true;
  state_->child = StartExecutable(arguments, limits, streams);
  state_->reaped = state_->ended = false;
  state_->Renew();
}

SupervisedChild::~SupervisedChild() = default;

bool SupervisedChild::Send(std::span<const std::byte> message) {
  KVCHECK_CHECK(!message.empty(), "an empty message is a sign of progress");
  if (state_->ended || !state_->child.to_child.open()) return false;
  state_->Renew();
  const FrameHeader header = EncodeFrameHeader(message.size());
  return state_->SendAll(header) && state_->SendAll(message);
}

bool SupervisedChild::SendFrame(std::span<const std::byte> frame) {
  if (state_->ended || !state_->child.to_child.open()) return false;
  state_->Renew();
  return state_->SendAll(frame);
}

void SupervisedChild::SetLimits(std::chrono::milliseconds since_progress,
                                std::chrono::milliseconds whole_wait) {
  state_->limits.since_progress = since_progress;
  state_->limits.whole_wait = whole_wait;
}

bool SupervisedChild::HasEnded() const { return state_->ended; }

void SupervisedChild::Look() {
  while (!state_->ended && state_->ReadMore()) {
  }
}

size_t SupervisedChild::Untaken() const {
  return state_->arrived.size() + (state_->header_filled > 0 ? 1 : 0);
}

std::optional<Message> SupervisedChild::Receive() {
  State& state = *state_;
  state.Renew();
  state.BoundWait();
  while (state.arrived.empty() && !state.ended) state.Step(nullptr);
  state.last_moment.reset();
  return TakeArrived();
}

std::optional<Message> SupervisedChild::TakeArrived() {
  if (state_->arrived.empty()) return std::nullopt;
  Message message = std::move(state_->arrived.front());
  state_->arrived.pop_front();
  state_->arrived_bytes -= message.size();
  return message;
}

std::optional<size_t> SupervisedChild::WaitAny(std::span<SupervisedChild* const> children,
                                               std::chrono::milliseconds longest) {
  const auto has_news = [](const SupervisedChild* child) {
    return !child->state_->arrived.empty() || child->state_->ended;
  };
  const auto started = Clock::now();
  for (SupervisedChild* child : children) {
    child->state_->deadline += child->state_->Now() - child->state_->watched;
  }
  std::vector<pollfd> files(2 * children.size());
  std::optional<size_t> found;
  for (auto now = started;; now = Clock::now()) {
    for (size_t i = 0; i < children.size() && !found; ++i) {
      if (has_news(children[i])) found = i;
    }
    if (found || now - started >= longest) break;
    auto wait = std::min<Clock::duration>(kLookInterval, longest - (now - started));
    for (size_t i = 0; i < children.size(); ++i) {
      const State& state = *children[i]->state_;
      files[2 * i] = {state.child.from_child.get(), POLLIN, 0};
      files[2 * i + 1] = {state.child.printed.get(), POLLIN, 0};
      wait = std::min<Clock::duration>(wait,
                                       std::max(state.deadline - state.Now(), Clock::duration{0}));
    }
    const int ready =
        poll(files.data(), files.size(),
             static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count()));
    for (size_t i = 0; i < children.size(); ++i) {
      // Without news, each is looked at: it may be gone, or over its limit.
      const bool moved = files[2 * i].revents != 0 || files[2 * i + 1].revents != 0;
      if (ready <= 0 || moved) children[i]->state_->Step(nullptr, std::chrono::milliseconds(0));
    }
  }
  for (SupervisedChild* child : children) child->state_->watched = child->state_->Now();
  return found;
}

const ChildOutcome& SupervisedChild::Finish() {
  State& state = *state_;
  state.child.to_child.Close();
  state.Renew();
  state.BoundWait();
  while (!state.ended) {
    state.Step(nullptr);
    state.arrived.clear();
    state.arrived_bytes = 0;
  }
  state.last_moment.reset();
  return state.outcome;
}

const ChildOutcome& SupervisedChild::Stop() {
  if (!state_->ended) state_->End(ChildEnd::kStopped, 0, "");
  return state_->outcome;
}

ChildOutcome RunSupervised(const std::function<int(ChildChannel&)>& body, const ChildLimits& limits,
                           const std::function<void(const Message&)>& on_message) {
  SupervisedChild child(body, limits);
  while (const std::optional<Message> message = child.Receive()) {
    if (on_message) on_message(*message);
  }
  return child.Finish();
}

}  // namespace kvcheck
