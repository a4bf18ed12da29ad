// Datasets of an HDF5 file: the checks before one is read, and reading elements of it.

#ifndef GOLDEN_HDF5_DATASET_H_
#define GOLDEN_HDF5_DATASET_H_

#include <hdf5.h>

#include <string>

#include "golden/file_index.h"

namespace kvcheck {

// What is the same for all objects of a file.
struct Hdf5Context {
  const std::string& path;
  const ReadLimits& limits;
  int64_t file_bytes = 0;
  // The type of a dataset must be the schema's storage type for kv_dtype, and axes must be given.
  bool is_golden = false;
};

// Fills dtype, shape and data_offset from the dataset and the attributes that the record has
// already. has_attributes: the dataset has attributes at all; `where` is its path. Errors:
// kUnreadableFile, for everything that would make reading unsafe or ambiguous: a type that is not
// kvcheck's, sizes that overflow or exceed the limits or what is stored, missing chunks, external
// or virtual storage, other filters than Fletcher32, shuffle and deflate.
void DescribeDataset(hid_t dataset, const Hdf5Context& file, bool has_attributes,
                     const std::string& where, ObjectRecord& record);

// Errors: kUnreadableFile. Precondition: the record is what DescribeDataset made.
void ReadDatasetElements(hid_t dataset, const ObjectRecord& record, int64_t first, int64_t count,
                         const std::string& where, const std::string& path, std::byte* out);

// Access properties with a chunk cache of bounded size.
hid_t DatasetAccess();

}  // namespace kvcheck

#endif  // GOLDEN_HDF5_DATASET_H_
