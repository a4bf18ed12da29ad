#include "golden/reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "golden/content_hash.h"
#include "golden/hdf5_file.h"
#include "reference/spec/error.h"
#include "reference/spec/near_name.h"

namespace kvcheck {

std::string ContentHashOf(TensorSource& source) {
  std::map<std::string, Sha256Digest> digests;
  std::vector<std::byte> block;
  for (const auto& [path, record] : source.index().objects) {
    if (!record.is_dataset) continue;
    Sha256 hash;
    const int64_t elements = record.shape.ElementCount();
    const int64_t step = BlockElements(record.dtype);
    for (int64_t first = 0; first < elements; first += step) {
      const int64_t count = std::min(step, elements - first);
      block.resize(static_cast<size_t>(count) * SizeInBytes(record.dtype));
      source.ReadElements(path, first, count, block.data());
      hash.Update(block.data(), block.size());
    }
    digests[path] = hash.Finish();
  }
  return ContentHash(source.index(), digests);
}

GoldenReader::GoldenReader(std::unique_ptr<TensorSource> source, VerifyHash verify)
    : source_(std::move(source)), outline_(OutlineOf(source_->index(), source_->path())) {
  if (verify == VerifyHash::kNo) return;
  const std::string found = ContentHashOf(*source_);
  if (found != outline_.content_hash) {
    throw Error(ErrorCode::kUnreadableFile,
                fmt::format("the content ({}) is not what content_hash says ({}): the file was "
                            "changed or damaged after it was written; make it anew",
                            found, outline_.content_hash),
                source_->path());
  }
}

GoldenReader GoldenReader::Open(const std::string& path, const ReadLimits& limits,
                                VerifyHash verify) {
  return GoldenReader(std::make_unique<Hdf5File>(path, limits), verify);
}

std::vector<std::string> GoldenReader::CaseNames() const {
  std::vector<std::string> names;
  for (const GoldenCase& golden_case : outline_.cases) names.push_back(golden_case.name);
  return names;
}

const GoldenCase& GoldenReader::Outline(const std::string& name) const {
  const auto found = std::lower_bound(
      outline_.cases.begin(), outline_.cases.end(), name,
      [](const GoldenCase& golden_case, const std::string& n) { return golden_case.name < n; });
  if (found != outline_.cases.end() && found->name == name) return *found;
  std::vector<std::string> near;
  auto neighbour = found - std::min<std::ptrdiff_t>(3, found - outline_.cases.begin());
  for (; neighbour != outline_.cases.end() && near.size() < 6; ++neighbour) {
    near.push_back(neighbour->name);
  }
  std::vector<std::string> names;
  for (const GoldenCase& golden_case : outline_.cases) names.push_back(golden_case.name);
  throw Error(ErrorCode::kSelection,
              fmt::format("there is no case '{}' among {}{}; near it: {}", name,
                          outline_.cases.size(), DidYouMean(name, names), fmt::join(near, ", ")),
              source_->path());
}

GoldenCase GoldenReader::ReadCase(const std::string& name) {
  GoldenCase golden_case = Outline(name);
  for (const auto& [dataset, tensor] : MutableTensorsOf(golden_case)) {
    *tensor = ReadTensor(*source_, dataset);
  }
  return golden_case;
}

GoldenFile GoldenReader::ReadAll() {
  GoldenFile file = outline_;
  for (GoldenCase& golden_case : file.cases) golden_case = ReadCase(golden_case.name);
  return file;
}

}  // namespace kvcheck
