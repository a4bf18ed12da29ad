// Which HDF5 type stores which kvcheck type. Memory and file types are always of the same bits, so
// that HDF5 converts nothing: its conversions round wrongly, and it has no type for fp8 without
// infinities. Types that HDF5 cannot say are unsigned integers of the same width; the attribute
// kv_dtype tells them apart.

#ifndef GOLDEN_HDF5_TYPES_H_
#define GOLDEN_HDF5_TYPES_H_

#include <hdf5.h>

#include <optional>
#include <string>

#include "golden/hdf5_handle.h"
#include "reference/spec/dtype.h"

namespace kvcheck {

// The little-endian type in which the schema stores a dtype.
Hdf5Handle StorageType(DType dtype);

// What a file's own type says, for files without kv_dtype: IEEE floats and bfloat16 of either byte
// order, integers, and the enumeration by which h5py stores booleans. nullopt for all else.
std::optional<DType> DTypeOfFileType(hid_t file_type);

// What a file type is, for a message: "integers of 16 bits", "a compound type".
std::string TypeText(hid_t file_type);

// True when the elements lie in the file as kvcheck holds them: little endian, or of one byte.
bool IsLittleEndian(hid_t file_type);

// True when a dataset of this file type may hold the dtype in a file without the schema: the
// storage type above, the type's own HDF5 form, or either in big-endian order.
bool MayHold(hid_t file_type, DType dtype);

// A type to read a file type with: the file's own, in little-endian order.
Hdf5Handle MemoryType(hid_t file_type);

}  // namespace kvcheck

#endif  // GOLDEN_HDF5_TYPES_H_
