#include "tools/process/untrusted_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#include "golden/hdf5_file.h"
#include "golden/input_file.h"
#include "golden/numpy_array.h"
#include "golden/raw_file.h"
#include "golden/tensor_file.h"
#include "reference/spec/error.h"
#include "tools/process/message_codec.h"

namespace kvcheck {
namespace {

// What a message of the child is about.
constexpr char kObjects = 'O';  // objects of the index
constexpr char kOpened = 'I';   // the index is complete
constexpr char kData = 'D';     // the elements asked for
constexpr char kError = 'E';    // an Error, as code, message

constexpr std::array<ErrorCode, 7> kErrorCodes = {
    ErrorCode::kUsage,          ErrorCode::kParse,       ErrorCode::kIllegalCase,
    ErrorCode::kUnreadableFile, ErrorCode::kMissingData, ErrorCode::kUnsupported,
    ErrorCode::kSelection};

// Sends the objects as they are met, many to a message: one a message costs more than listing the
// file.
class IndexSender {
 public:
  explicit IndexSender(ChildChannel& channel) : channel_(channel) {}

  void Add(const std::string& path, const ObjectRecord& record) {
    constexpr size_t kMessageBytes = size_t{64} * 1024;
    if (objects_.message().empty()) objects_.Byte(kObjects);
    objects_.Text(path);
    objects_.Record(record);
    if (objects_.message().size() >= kMessageBytes) Flush();
  }

  void Finish(bool is_golden) {
    Flush();
    MessageEncoder message;
    message.Byte(kOpened);
    message.Byte(is_golden ? 1 : 0);
    channel_.Send(message.message());
  }

 private:
  void Flush() {
    if (!objects_.message().empty()) channel_.Send(objects_.message());
    objects_ = {};
  }

  ChildChannel& channel_;
  MessageEncoder objects_;
};

void SendError(ChildChannel& channel, ErrorCode code, std::string_view text) {
  MessageEncoder message;
  message.Byte(kError);
  message.Integer(static_cast<int64_t>(code));
  message.Text(text);
  channel.Send(message.message());
}

// The type of a dataset that was listed.
using TypeOf = std::function<DType(const std::string& dataset)>;

Message Answer(const Message& request, TensorSource& file, const TypeOf& type_of) {
  MessageDecoder decoder(request);
  const std::string dataset = decoder.Text();
  const int64_t first = decoder.Integer();
  const int64_t count = decoder.Integer();
  const size_t bytes = static_cast<size_t>(count) * SizeInBytes(type_of(dataset));
  Message reply(1 + bytes);
  reply[0] = static_cast<std::byte>(kData);
  file.ReadElements(dataset, first, count, reply.data() + 1);
  return reply;
}

// A tensor that cannot be read is answered with its error; the others can still be asked for.
void Serve(ChildChannel& channel, TensorSource& file, const TypeOf& type_of) {
  while (const std::optional<Message> request = channel.Receive()) {
    try {
      channel.Send(Answer(*request, file, type_of));
    } catch (const Error& error) {
      SendError(channel, error.code(), error.message());
    }
  }
}

bool IsNumpyArchive(const std::string& path) {
  try {
    return FormatOfFile(path) == TensorFileFormat::kNumpyArchive;
  } catch (const Error&) {
    return false;  // HDF5's own reader says what is wrong
  }
}

void ServeArchive(ChildChannel& channel, const TensorPlace& place, const ReadLimits& limits) {
  NumpyArchive archive(place.path, place.dtype, limits);
  IndexSender sender(channel);
  for (const auto& [path, record] : archive.index().objects) sender.Add(path, record);
  sender.Finish(archive.index().is_golden);
  Serve(channel, archive,
        [&](const std::string& dataset) { return DatasetRecord(archive, dataset).dtype; });
}

void ServeHdf5(ChildChannel& channel, const TensorPlace& place, const ReadLimits& limits) {
  IndexSender sender(channel);
  Hdf5File file(place.path, limits,
                [&sender](const std::string& object, const ObjectRecord& record) {
                  sender.Add(object, record);
                });
  sender.Finish(file.index().is_golden);
  Serve(channel, file, [&](const std::string& dataset) { return file.Describe(dataset).dtype; });
}

int ReadInChild(ChildChannel& channel, const TensorPlace& place, ReadLimits limits) {
  limits.progress = [&channel] { channel.Progress(); };
  try {
    if (IsNumpyArchive(place.path)) {
      ServeArchive(channel, place, limits);
    } else {
      ServeHdf5(channel, place, limits);
    }
  } catch (const Error& error) {
    SendError(channel, error.code(), error.message());
  } catch (const std::bad_alloc&) {
    SendError(channel, ErrorCode::kUnreadableFile,
              "reading it needs more memory than its reader is allowed");
  }
  return 0;
}

}  // namespace

struct UntrustedFile::State {
  State(const TensorPlace& place, const UntrustedOptions& options)
      : path(place.path),
        limits(options.limits),
        file(place.path),
        child([place, limits = options.limits](
                  ChildChannel& channel) { return ReadInChild(channel, place, limits); },
              options.child) {}

  // The child's next message. Errors: kUnreadableFile when there is none.
  Message Next() {
    std::optional<Message> message = child.Receive();
    if (!message) Fail();
    return std::move(*message);
  }

  // The child ended without an answer.
  [[noreturn]] void Fail() {
    const ChildOutcome& outcome = child.Finish();
    std::string_view blame =
        outcome.end == ChildEnd::kSignalled || outcome.end == ChildEnd::kTimedOut
            ? ": it is damaged in a way that the library that reads it does not survive"
            : "";
    const std::string_view printed = outcome.stderr_tail;
    throw Error(ErrorCode::kUnreadableFile,
                fmt::format("the process that reads it {}{}{}{}", ToString(outcome), blame,
                            printed.empty() ? "" : "; it printed: ", printed),
                path);
  }

  [[noreturn]] void Refuse() {
    child.Stop();
    throw Error(ErrorCode::kUnreadableFile, "the process that reads the file sent nonsense", path);
  }

  [[noreturn]] void Rethrow(MessageDecoder& decoder) {
    const int64_t number = decoder.Integer();
    const std::string text = decoder.Text();
    for (ErrorCode code : kErrorCodes) {
      if (static_cast<int64_t>(code) == number) throw Error(code, text, path);
    }
    Refuse();
  }

  bool HasGoldenAxes() const {
    const auto fits = [](const Axis& axis) { return axis.name.empty() || IsAxisName(axis.name); };
    return std::all_of(index.objects.begin(), index.objects.end(), [&](const auto& object) {
      const std::vector<Axis>& axes = object.second.shape.axes;
      return std::all_of(axes.begin(), axes.end(), fits);
    });
  }

  void ReceiveIndex() {
    int64_t total_bytes = 0;
    while (true) {
      const Message message = Next();
      MessageDecoder decoder(message);
      const char kind = decoder.Byte();
      if (kind == kError) Rethrow(decoder);
      if (kind == kOpened) {
        index.is_golden = decoder.Byte() != 0;
        decoder.ExpectEnd();
        if (index.is_golden && !HasGoldenAxes()) Refuse();
        return;
      }
      if (kind != kObjects) Refuse();
      do {
        std::string object_path = decoder.Text();
        ObjectRecord record = decoder.Record(limits, file.size());
        if (record.is_dataset) {
          total_bytes +=
              record.shape.ElementCount() * static_cast<int64_t>(SizeInBytes(record.dtype));
        }
        const auto [found, is_new] =
            index.objects.emplace(std::move(object_path), std::move(record));
        if (!is_new) {
          child.Stop();
          throw Error(ErrorCode::kUnreadableFile,
                      fmt::format("{}: it is there twice", found->first), path);
        }
        if (static_cast<int64_t>(index.objects.size()) > limits.max_objects ||
            total_bytes > limits.max_total_bytes) {
          Refuse();
        }
      } while (!decoder.AtEnd());
    }
  }

  void ReadBlock(const std::string& dataset, int64_t first, int64_t count, size_t bytes,
                 std::byte* out) {
    const std::lock_guard lock(reading);
    MessageEncoder request;
    request.Text(dataset);
    request.Integer(first);
    request.Integer(count);
    if (!child.Send(request.message())) Fail();
    const Message reply = Next();
    MessageDecoder decoder(reply);
    const char kind = decoder.Byte();
    if (kind == kError) Rethrow(decoder);
    if (kind != kData || reply.size() != bytes + 1) Refuse();
    std::memcpy(out, reply.data() + 1, bytes);
    file.ThrowIfChanged();
  }

  std::string path;
  ReadLimits limits;
  // Refuses at once what would keep the child waiting, and sees later changes.
  InputFile file;
  FileIndex index;
  std::mutex reading;  // a request and its reply
  SupervisedChild child;
};

UntrustedFile::UntrustedFile(const std::string& place, const UntrustedOptions& options)
    : state_(std::make_unique<State>(ParseTensorPlace(place), options)) {
  state_->ReceiveIndex();
}

UntrustedFile::~UntrustedFile() = default;

const std::string& UntrustedFile::path() const { return state_->path; }
const FileIndex& UntrustedFile::index() const { return state_->index; }

void UntrustedFile::ReadElements(const std::string& dataset, int64_t first, int64_t count,
                                 std::byte* out) {
  const ObjectRecord& record = DatasetRecord(*this, dataset);
  KVCHECK_CHECK(first >= 0 && count >= 0 && first <= record.shape.ElementCount() - count,
                "elements outside of the tensor");
  const auto width = static_cast<int64_t>(SizeInBytes(record.dtype));
  const int64_t block = BlockElements(record.dtype);
  for (int64_t done = 0; done < count; done += block) {
    const int64_t part = std::min(block, count - done);
    state_->ReadBlock(dataset, first + done, part, static_cast<size_t>(part * width),
                      out + done * width);
    if (state_->index.is_golden) {
      CheckStoredValues(record, out + done * width, static_cast<size_t>(part * width), dataset,
                        state_->path);
    }
  }
}

std::unique_ptr<TensorSource> OpenUntrustedTensors(const std::string& place,
                                                   const UntrustedOptions& options) {
  return OpenTensorFile(
      place,
      [&options](const std::string& place) {
        return std::make_unique<UntrustedFile>(place, options);
      },
      options.limits);
}

GoldenReader OpenUntrustedGolden(const std::string& path, const UntrustedOptions& options) {
  return GoldenReader(std::make_unique<UntrustedFile>(path, options));
}

GoldenFile ReadUntrustedGolden(const std::string& path, const UntrustedOptions& options) {
  return OpenUntrustedGolden(path, options).ReadAll();
}

}  // namespace kvcheck
