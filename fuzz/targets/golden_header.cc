// Whatever bytes arrive as the listing of a golden file from the process that reads it
// (tools/process/message_codec.h): refused as unreadable, or an index that obeys the schema, of
// which the outline has every tensor once, with its type and shape, under names of the schema.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "golden/schema.h"
#include "reference/spec/case.h"
#include "reference/spec/error.h"
#include "tools/process/message_codec.h"

namespace {

using kvcheck::Error;
using kvcheck::ErrorCode;

std::optional<kvcheck::FileIndex> IndexOfBytes(std::span<const std::byte> bytes) {
  constexpr int64_t kFileBytes = int64_t{1} << 20;
  kvcheck::FileIndex index;
  kvcheck::MessageDecoder decoder(bytes);
  index.is_golden = decoder.Byte() != 0;
  while (!decoder.AtEnd()) {
    std::string path = decoder.Text();
    if (!index.objects.emplace(std::move(path), decoder.Record({}, kFileBytes)).second) {
      return std::nullopt;
    }
  }
  return index;
}

void CheckTensors(const kvcheck::FileIndex& index, const kvcheck::GoldenFile& file) {
  int64_t left = 0;
  for (const auto& [path, record] : index.objects) left += record.is_dataset ? 1 : 0;
  for (const kvcheck::GoldenCase& golden_case : file.cases) {
    KVCHECK_CHECK(kvcheck::IsGoldenName(golden_case.name), "a case of a name that is none");
    for (const auto& [path, tensor] : kvcheck::TensorsOf(golden_case)) {
      const auto found = index.objects.find(path);
      KVCHECK_CHECK(found != index.objects.end() && found->second.is_dataset &&
                        found->second.dtype == tensor->dtype &&
                        found->second.shape == tensor->shape && tensor->bytes.empty(),
                    "an outline with another tensor than the index");
      --left;
    }
  }
  KVCHECK_CHECK(left == 0, "an outline that loses tensors");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto index = IndexOfBytes(std::as_bytes(std::span(data, size)));
    if (!index) return 0;
    const kvcheck::GoldenFile file = kvcheck::OutlineOf(*index, "f");
    for (const kvcheck::GoldenCase& golden_case : file.cases) {
      try {
        kvcheck::ParseCase(golden_case.case_text);
      } catch (const Error& error) {
        KVCHECK_CHECK(!error.message().empty(), "a refusal without a reason");
      }
    }
    CheckTensors(*index, file);
  } catch (const Error& error) {
    KVCHECK_CHECK(error.code() == ErrorCode::kUnreadableFile && !error.message().empty(),
                  "a refusal of another kind, or without a reason");
  }
  return 0;
}
