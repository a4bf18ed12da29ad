#include "tools/compare/tensor_equal.h"

#include <algorithm>
#include <vector>

namespace kvcheck {
namespace {

constexpr int64_t kSampleElements = 64;

const ObjectRecord* FindReadable(const LockedFile& file, const std::string& path) {
  const auto found = file.source.index().objects.find(path);
  if (found == file.source.index().objects.end()) return nullptr;
  const ObjectRecord& record = found->second;
  return record.is_dataset && record.problem.empty() ? &record : nullptr;
}

std::vector<std::byte> ReadRange(LockedFile& file, const std::string& path, DType dtype,
                                 int64_t first, int64_t count) {
  std::vector<std::byte> bytes(static_cast<size_t>(count) * SizeInBytes(dtype));
  const std::lock_guard<std::mutex> lock(file.mutex);
  file.source.ReadElements(path, first, count, bytes.data());
  return bytes;
}

// The common record of two tensors that may be equal; nullptr when they cannot.
const ObjectRecord* Common(LockedFile& gold, const std::string& gold_path, LockedFile& got,
                           const std::string& got_path) {
  const ObjectRecord* want = FindReadable(gold, gold_path);
  const ObjectRecord* have = FindReadable(got, got_path);
  if (want == nullptr || have == nullptr || want->dtype != have->dtype ||
      !want->shape.SameExtents(have->shape) || want->shape.ElementCount() == 0) {
    return nullptr;
  }
  return want;
}

}  // namespace

bool TensorsLookEqual(LockedFile& gold, const std::string& gold_path, LockedFile& got,
                      const std::string& got_path) {
  const ObjectRecord* record = Common(gold, gold_path, got, got_path);
  if (record == nullptr) return false;
  const int64_t elements = record->shape.ElementCount();
  const int64_t count = std::min(elements, kSampleElements);
  for (const int64_t first : {int64_t{0}, (elements - count) / 2, elements - count}) {
    if (ReadRange(gold, gold_path, record->dtype, first, count) !=
        ReadRange(got, got_path, record->dtype, first, count)) {
      return false;
    }
  }
  return true;
}

bool TensorsAreEqual(LockedFile& gold, const std::string& gold_path, LockedFile& got,
                     const std::string& got_path, const std::function<void()>& between) {
  const ObjectRecord* record = Common(gold, gold_path, got, got_path);
  if (record == nullptr) return false;
  const int64_t elements = record->shape.ElementCount();
  const int64_t step = BlockElements(record->dtype);
  for (int64_t first = 0; first < elements; first += step) {
    between();
    const int64_t count = std::min(step, elements - first);
    if (ReadRange(gold, gold_path, record->dtype, first, count) !=
        ReadRange(got, got_path, record->dtype, first, count)) {
      return false;
    }
  }
  return true;
}

}  // namespace kvcheck
