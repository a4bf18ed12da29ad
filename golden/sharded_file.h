// A folder of safetensors files, or of numpy's .npy files, as one TensorSource: a model or a dump
// saved in shards, as transformers, mlx-lm and vLLM write them, or a file an array, as numpy.save
// writes them.

#ifndef GOLDEN_SHARDED_FILE_H_
#define GOLDEN_SHARDED_FILE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "golden/file_index.h"

namespace kvcheck {

// The attribute of "/" with what lies in a folder and its index does not name:
// "extra.safetensors, 'x' of a.safetensors".
inline constexpr const char* kNotNamedByIndex = "not_named_by_index";

// With a file NAME.safetensors.index.json, which says in "weight_map" which shard has which tensor:
// the shards that it names, where a tensor that it does not name is listed with a problem. Files
// that it does not name are not read (kNotNamedByIndex). Without an index: every *.safetensors of
// the folder; where there is none, every NAME.npy, whose tensor is /NAME. Attributes of a shard are
// those of "/", with the name of the shard before them ("model-1.safetensors.metadata.format"). No
// tensor has a data_offset.
//
// Thread-safe as SafetensorsFile is.
class ShardedFile : public TensorSource {
 public:
  // Reads the index and all headers; no tensor data is read.
  // Errors: kUnreadableFile: no shards, several indices, an index that is no JSON of that form or
  // that names what is not there, one tensor in two shards; and those of SafetensorsFile.
  explicit ShardedFile(const std::string& folder, const ReadLimits& limits = {});

  const std::string& path() const override { return folder_; }
  const FileIndex& index() const override { return index_; }
  TensorOrigin OriginOf(const std::string& dataset) const override;
  void ReadElements(const std::string& dataset, int64_t first, int64_t count,
                    std::byte* out) override;

 private:
  void Take(const std::string& shard, std::unique_ptr<TensorSource> source,
            const std::map<std::string, std::string>* weight_map, const ReadLimits& limits);

  std::string folder_;
  FileIndex index_;
  std::vector<std::unique_ptr<TensorSource>> shards_;
  std::map<std::string, size_t> shard_of_;  // by path of the tensor
  std::vector<std::string> unnamed_;        // by the index
};

}  // namespace kvcheck

#endif  // GOLDEN_SHARDED_FILE_H_
