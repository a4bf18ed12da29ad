// Datasets of an HDF5 file: the checks before one is read, and reading elements of it.

#ifndef GOLDEN_HDF5_DATASET_H_
#define GOLDEN_HDF5_DATASET_H_

#include <hdf5.h>

#include <string>

#include "golden/file_index.h"

namespace kvcheck {

// Fills dtype and shape from the dataset and the attributes that the record has already.
// `is_golden`: the type must be the schema's storage type for kv_dtype, and axes must be given.
// Errors: kUnreadableFile, for everything that would make reading unsafe or ambiguous: a type that
// is not kvcheck's, sizes that overflow or exceed the limits or what is stored, missing chunks,
// external or virtual storage, other filters than Fletcher32, shuffle and deflate.
void DescribeDataset(hid_t dataset, bool is_golden, const ReadLimits& limits,
                     const std::string& where, const std::string& path, ObjectRecord& record);

// Errors: kUnreadableFile. Precondition: the record is what DescribeDataset made.
void ReadDatasetElements(hid_t dataset, const ObjectRecord& record, int64_t first, int64_t count,
                         const std::string& where, const std::string& path, std::byte* out);

// Access properties with a chunk cache of bounded size.
hid_t DatasetAccess();

}  // namespace kvcheck

#endif  // GOLDEN_HDF5_DATASET_H_
