// Attributes of HDF5 objects: scalar texts and integers, read with nothing trusted.

#ifndef GOLDEN_HDF5_ATTRIBUTE_H_
#define GOLDEN_HDF5_ATTRIBUTE_H_

#include <hdf5.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "golden/file_index.h"

namespace kvcheck {

// All attributes of a golden file's object. `where` is the object's path, for messages.
// Errors: kUnreadableFile, also for an attribute that is neither a scalar text (UTF-8, without NUL,
// of bounded length) nor a scalar integer.
std::map<std::string, AttributeValue> ReadAttributes(hid_t object, const std::string& where,
                                                     const std::string& path);

// One attribute of a foreign file's object; nullopt when it is absent or anything else.
std::optional<AttributeValue> TryReadAttribute(hid_t object, const std::string& name);

// The labels of a dataset's dimensions (HDF5's dimension scale convention), one per axis; empty
// when there are none, or not `rank` of them.
std::vector<std::string> DimensionLabels(hid_t dataset, size_t rank);

// True when the object has an attribute of this name.
bool HasAttribute(hid_t object, const std::string& name);

// Errors: kUnreadableFile when HDF5 cannot write it.
void WriteAttribute(hid_t object, const std::string& name, const AttributeValue& value,
                    const std::string& path);

}  // namespace kvcheck

#endif  // GOLDEN_HDF5_ATTRIBUTE_H_
