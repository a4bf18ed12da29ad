// A folder of safetensors files as one TensorSource: a model or a dump saved in shards, as
// transformers, mlx-lm and vLLM write them.

#ifndef GOLDEN_SHARDED_FILE_H_
#define GOLDEN_SHARDED_FILE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "golden/file_index.h"
#include "golden/safetensors_file.h"

namespace kvcheck {

// With a file NAME.safetensors.index.json, which says in "weight_map" which shard has which tensor:
// the shards that it names, where a tensor that it does not name is listed with a problem. Without
// one: every *.safetensors of the folder. Attributes of a shard are those of "/", with the name of
// the shard before them ("model-1.safetensors.metadata.format"). No tensor has a data_offset.
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
  void ReadElements(const std::string& dataset, int64_t first, int64_t count,
                    std::byte* out) override;

 private:
  void Take(const std::string& shard, const std::map<std::string, std::string>* weight_map,
            const ReadLimits& limits);

  std::string folder_;
  FileIndex index_;
  std::vector<std::unique_ptr<SafetensorsFile>> shards_;
  std::map<std::string, size_t> shard_of_;  // by path of the tensor
};

}  // namespace kvcheck

#endif  // GOLDEN_SHARDED_FILE_H_
