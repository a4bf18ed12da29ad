// Reading golden files: opens one, holds it to the schema, verifies its content hash, and gives its
// cases whole or tensor by tensor.

#ifndef GOLDEN_READER_H_
#define GOLDEN_READER_H_

#include <memory>
#include <string>
#include <vector>

#include "golden/file_index.h"
#include "golden/schema.h"

namespace kvcheck {

enum class VerifyHash {
  kYes,  // reads the whole file once when it is opened
  kNo,   // for files that this process has written itself
};

class GoldenReader {
 public:
  // From any source: tools/process/untrusted_reader.h has one for untrusted files.
  // Errors: kUnreadableFile when the file is not a golden file, breaks the schema, or its content
  // is not what its hash says.
  explicit GoldenReader(std::unique_ptr<TensorSource> source, VerifyHash verify = VerifyHash::kYes);
  // In this process, without protection against loops of the HDF5 library.
  static GoldenReader Open(const std::string& path, const ReadLimits& limits = {},
                           VerifyHash verify = VerifyHash::kYes);

  // Everything but the tensors' bytes: they have their types and shapes, and are empty.
  const GoldenFile& outline() const { return outline_; }
  std::vector<std::string> CaseNames() const;
  // Errors: kSelection when there is no such case; the message lists the nearest names.
  const GoldenCase& Outline(const std::string& name) const;

  // A case with all its tensors. Errors: as Outline, and kUnreadableFile.
  GoldenCase ReadCase(const std::string& name);
  // The whole file. Errors: kUnreadableFile.
  GoldenFile ReadAll();

  // For tensors that are read in parts (file_index.h); datasets by absolute path.
  TensorSource& source() { return *source_; }

 private:
  std::unique_ptr<TensorSource> source_;
  GoldenFile outline_;
};

// The content hash of what the source holds, read by blocks. Errors: kUnreadableFile.
std::string ContentHashOf(TensorSource& source);

}  // namespace kvcheck

#endif  // GOLDEN_READER_H_
