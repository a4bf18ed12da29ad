// The child's end of a supervised child's messages.

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "reference/spec/error.h"
#include "tools/process/message_frame.h"
#include "tools/process/supervised_child.h"

namespace kvcheck {
namespace {

// The parent is gone, or the pipe is: nobody will hear what else happens here.
[[noreturn]] void LeaveWithoutParent() { _exit(0); }

void WriteAll(int descriptor, const std::byte* data, size_t size) {
  while (size > 0) {
    const ssize_t written = write(descriptor, data, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      LeaveWithoutParent();
    }
    data += written;
    size -= static_cast<size_t>(written);
  }
}

// False at the end of the stream.
bool ReadAll(int descriptor, std::byte* data, size_t size) {
  while (size > 0) {
    const ssize_t got = read(descriptor, data, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

void ChildChannel::Send(std::span<const std::byte> message) {
  KVCHECK_CHECK(!message.empty(), "an empty message is a sign of progress");
  const FrameHeader header = EncodeFrameHeader(message.size());
  WriteAll(write_descriptor_, header.data(), header.size());
  WriteAll(write_descriptor_, message.data(), message.size());
  last_sign_ = std::chrono::steady_clock::now();
}

void ChildChannel::Progress() {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_sign_ < std::chrono::milliseconds(10)) return;
  const FrameHeader header = EncodeFrameHeader(0);
  WriteAll(write_descriptor_, header.data(), header.size());
  last_sign_ = now;
}

std::optional<Message> ChildChannel::Receive() {
  FrameHeader header;
  if (!ReadAll(read_descriptor_, header.data(), header.size())) return std::nullopt;
  Message message(DecodeFrameHeader(header));  // the parent is trusted
  if (!ReadAll(read_descriptor_, message.data(), message.size())) return std::nullopt;
  return message;
}

}  // namespace kvcheck
