#include "tools/process/serve.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "reference/spec/error.h"
#include "tools/process/message_frame.h"
#include "tools/process/remote_process.h"
#include "tools/process/serve_cache.h"
#include "tools/process/serve_prefix.h"

namespace kvcheck {
namespace {

constexpr int kExitNoRequest = 2;

// Frames as they arrive, read in larger pieces.
class FrameInput {
 public:
  explicit FrameInput(int descriptor) : descriptor_(descriptor), buffer_(65536) {}

  // The next frame's bytes; nullopt at the end of the stream. Errors: WireError.
  std::optional<std::vector<std::byte>> Next() {
    FrameHeader header;
    if (!Fill(header.data(), header.size(), true)) return std::nullopt;
    const uint64_t length = DecodeFrameHeader(header);
    if (length > static_cast<uint64_t>(kMaxFrameBytes)) {
      throw WireError(fmt::format("a frame of {} bytes", length));
    }
    std::vector<std::byte> frame(length);
    Fill(frame.data(), frame.size(), false);
    return frame;
  }

 private:
  // False when the stream ends before the first byte, and it may.
  bool Fill(std::byte* to, size_t size, bool may_end) {
    while (size > 0) {
      if (at_ == end_) {
        const ssize_t got = read(descriptor_, buffer_.data(), buffer_.size());
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
          if (may_end) return false;
          throw WireError("the stream of requests ends within a frame");
        }
        at_ = 0;
        end_ = static_cast<size_t>(got);
      }
      const size_t part = std::min(size, end_ - at_);
      std::memcpy(to, buffer_.data() + at_, part);
      to += part;
      at_ += part;
      size -= part;
      may_end = false;
    }
    return true;
  }

  int descriptor_;
  std::vector<std::byte> buffer_;
  size_t at_ = 0;
  size_t end_ = 0;
};

bool WriteAnswer(int descriptor, std::span<const std::byte> frame) {
  while (!frame.empty()) {
    const ssize_t written = write(descriptor, frame.data(), frame.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    frame = frame.subspan(static_cast<size_t>(written));
  }
  return true;
}

void AnswerCase(const Served& served, const WireValue& request, WireWriter& writer) {
  const Case c = ParseCase(std::string(request.Get("case").AsText("'case'")));
  const auto text = [&](std::string_view key) {
    const auto value = request.Find(key);
    return value ? std::string(value->AsText(key)) : std::string();
  };
  TensorMap inputs;
  const std::map<std::string, TensorSpec> specs = InputSpecs(c);
  request.Get("inputs").ForEach("'inputs'", [&](std::string_view name, const WireValue& value) {
    const WireArray array = value.AsArray(name);
    Tensor tensor(array.dtype, Shape::Unnamed({array.extents, array.extents + array.rank}));
    if (!array.bytes.empty()) {
      std::memcpy(tensor.bytes.data(), array.bytes.data(), array.bytes.size());
    }
    const auto spec = specs.find(std::string(name));
    if (spec != specs.end() && spec->second.shape.SameExtents(tensor.shape)) {
      tensor.shape = spec->second.shape;
    }
    inputs.emplace(name, std::move(tensor));
  });
  CheckInputs(c, inputs);
  const std::string plan = text("plan");
  const std::unique_ptr<Implementation> implementation =
      served.make == nullptr ? nullptr
                             : served.make(c, ParsePlan(plan.empty() ? "base=stranger" : plan),
                                           ParseProfile(text("profile")));
  MemorySink sink;
  const RunOutcome outcome =
      implementation == nullptr ? RunOutcome::kUnsupported : implementation->Run(c, inputs, sink);
  if (outcome == RunOutcome::kRefused) {
    writer.Key("refused");
    writer.Text(implementation->Reason());
    return;
  }
  if (outcome == RunOutcome::kUnsupported) {
    writer.Key("unsupported");
    writer.Text(fmt::format("{} declines this case", served.greeting.name));
    return;
  }
  writer.Key("outputs");
  writer.StartMap();
  for (const auto& [name, tensor] : sink.tensors()) {
    std::vector<int64_t> extents;
    for (const Axis& axis : tensor.shape.axes) extents.push_back(axis.extent);
    writer.Key(name);
    const std::span<std::byte> to = writer.Array(tensor.dtype, extents);
    if (!to.empty()) std::memcpy(to.data(), tensor.bytes.data(), to.size());
  }
  writer.EndMap();
  if (const Plan* said = implementation->AnswerPlan()) {
    writer.Key("plan");
    writer.Text(Print(*said));
  }
  const Profile* said = implementation->AnswerProfile();
  if (said == nullptr && served.case_profile) said = &*served.case_profile;
  if (said != nullptr) {
    writer.Key("profile");
    writer.Text(Print(*said));
  }
}

void AnswerWith(std::string_view key, std::string_view message, WireWriter& writer,
                bool no_room = false) {
  writer.StartFrame();
  writer.StartMap();
  writer.Key(key);
  writer.Text(message);
  if (no_room) {
    writer.Key("no_room");
    writer.Text(message);
  }
  writer.EndMap();
}

}  // namespace

int Serve(Served served, int input, int output) {
  FrameInput frames(input);
  WireMessage message;
  WireWriter writer;
  std::optional<CacheServer> caches;
  if (served.caches != nullptr) caches.emplace(served.caches.get());
  std::optional<PrefixServer> prefixes;
  if (served.prefixes != nullptr) prefixes.emplace(served.prefixes.get());
  bool of_prefixes = false;  // the last `start` was of that kind
  const auto complain = [](const char* what) {
    std::fprintf(stderr, "kvcheck serve: %s\n", what);
    return kExitNoRequest;
  };
  try {
    while (const std::optional<std::vector<std::byte>> frame = frames.Next()) {
      const WireValue request = message.Read(*frame);
      const std::string_view name = request.Get("do").AsText("'do'");
      bool known = true;
      try {
        writer.StartFrame();
        writer.StartMap();
        if (name == "hello") {
          WriteGreeting(served.greeting, writer);
        } else if (name == "case") {
          AnswerCase(served, request, writer);
        } else {
          if (name == "start") of_prefixes = request.Find("kind").has_value();
          known = of_prefixes ? prefixes && prefixes->Answer(name, request, writer)
                              : caches && caches->Answer(name, request, writer);
        }
        writer.EndMap();
      } catch (const Error& error) {
        AnswerWith(
            error.code() == ErrorCode::kUnsupported ? "unsupported" : "failed", error.message(),
            writer,
            // The folder of kept prompts cannot be used, which proves nothing about the cache.
            of_prefixes && error.code() == ErrorCode::kUnreadableFile);
      } catch (const std::exception& error) {
        AnswerWith("failed", error.what(), writer);
      }
      if (!known) AnswerWith("failed", fmt::format("there is no request '{}'", name), writer);
      if (writer.size() > kMaxFrameBytes) {
        // A case can be declined; of operations nobody knows any more what the answer was.
        AnswerWith(name == "case" ? "unsupported" : "failed",
                   "the answer does not fit a frame of the protocol", writer);
      }
      if (!WriteAnswer(output, writer.FinishFrame())) return 0;  // nobody listens any more
    }
  } catch (const WireError& error) {
    return complain(error.what());
  }
  return 0;
}

}  // namespace kvcheck
