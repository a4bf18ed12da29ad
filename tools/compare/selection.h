// Which tensors of GOLD and GOT are compared with each other, in which order, and what is missing
// or extra. Names are GOLD's: GOT's are renamed first, then patterns and shards apply. Where either
// file has one tensor that is named by the file only, and the other has one, these are a pair.

#ifndef TOOLS_COMPARE_SELECTION_H_
#define TOOLS_COMPARE_SELECTION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "golden/file_index.h"
#include "reference/spec/glob.h"
#include "reference/spec/kv_format.h"
#include "tools/compare/renames.h"

namespace kvcheck {

// One of `count` parts of the tensors.
// Definition: a tensor is in part 1 + (h mod count), where h is the first 8 bytes, big endian, of
// the SHA-256 of GOLD's path, which starts with "/". In Python:
//   1 + int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big") % count
struct Shard {
  int64_t index = 1;  // from 1
  int64_t count = 1;

  bool Has(const std::string& gold_path) const;
};

inline constexpr int64_t kMostShards = 1'000'000;

// "i/n". Errors: kUsage.
Shard ParseShard(const std::string& text);

struct SelectionOptions {
  std::vector<Glob> include;  // empty: everything
  std::vector<Glob> exclude;  // beats include
  std::vector<Glob> allow_missing;
  std::vector<Glob> allow_extra;
  Renames renames;
  Shard shard;
  // The coded format in which GOT may hold a tensor of GOLD (triplets.h).
  std::function<std::optional<KvFormat>(const std::string& gold_path)> format_of;
};

// What a tensor of GOT says of the format of others.
enum class FormatField : uint8_t { kGroupSize, kBits };

// A tensor of GOLD and the one of GOT that is held against it.
struct TensorPair {
  std::string name;  // GOLD's path
  bool in_gold = false;
  std::string got;  // GOT's path; "" when GOT has none
  // GOT's paths of the planes of a coded format, where it has the tensor in that form; else empty.
  std::vector<std::string> triplet;
  std::optional<FormatField> says;  // of a tensor that GOLD lacks
  // Under a codec rule, where GOT does not have all planes: which there are and which not.
  std::string lacks;
  bool operator==(const TensorPair&) const = default;
};

struct Selection {
  std::vector<TensorPair> pairs;  // by the bytes of their names; missing and extra ones among them
  // Left out because --allow-missing and --allow-extra say so.
  std::vector<std::string> allowed_missing;
  std::vector<std::string> allowed_extra;
  // All names of either file before patterns and shards.
  std::vector<std::string> all_names;
};

// Errors: kUsage for renames that change nothing, or that give two tensors one name; kSelection
// when no pair is left, or when a pattern of allow_missing or allow_extra matches no tensor of
// either file.
Selection SelectTensors(const FileIndex& gold, const FileIndex& got,
                        const SelectionOptions& options);

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_SELECTION_H_
