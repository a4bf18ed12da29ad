// Writing golden files: case by case, under a temporary name until everything is on disk.

#ifndef GOLDEN_WRITER_H_
#define GOLDEN_WRITER_H_

#include <memory>
#include <string>

#include "golden/schema.h"

namespace kvcheck {

class GoldenWriter {
 public:
  // Errors: kUsage for texts that the schema has no place for; kUnreadableFile when the folder
  // cannot be written.
  GoldenWriter(const std::string& path, const std::string& source, const std::string& command);
  // Without Finish: nothing appears under the path.
  ~GoldenWriter();
  GoldenWriter(const GoldenWriter&) = delete;
  GoldenWriter& operator=(const GoldenWriter&) = delete;

  // Writes all tensors of the case; memory does not grow with their bytes.
  // Errors: kUsage when the case breaks the schema or its name is there already; kUnreadableFile.
  void AddCase(const GoldenCase& golden_case);

  // Writes the content hash, syncs, renames into place, and gives the hash.
  // Errors: kUnreadableFile.
  std::string Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A whole file; its content_hash is ignored and the one written is given back.
// Errors: as GoldenWriter; also kUsage when file.schema is not the schema that is written.
std::string WriteGoldenFile(const std::string& path, const GoldenFile& file);

}  // namespace kvcheck

#endif  // GOLDEN_WRITER_H_
