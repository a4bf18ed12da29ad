// A decoder in files as transformers and mlx-lm keep it: config.json, and its weights beside it in
// one safetensors file.

#ifndef GOLDEN_DECODER_FILE_H_
#define GOLDEN_DECODER_FILE_H_

#include <string>
#include <string_view>

#include "reference/spec/decoder.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

struct DecoderFile {
  DecoderConfig config;
  TensorMap weights;  // by the names of DecoderTensors
  std::string path;   // of the weights
};

// json: a config.json of model_type llama, mistral or ministral. What it says that changes the
// arithmetic and is not in DecoderConfig (biases, scaled RoPE, another activation, multipliers,
// soft caps, quantized weights) is refused by its key. Errors: kUnreadableFile for what is no JSON
// object; kMissingData for a key that is absent or of another type; kUnsupported; kIllegalCase.
DecoderConfig ParseDecoderConfig(std::string_view json, const std::string& path);

// path: a safetensors file, or the folder of model.safetensors; config.json stands beside it.
// Errors: as ParseDecoderConfig and CheckWeights; kUnreadableFile; kMissingData for a weight that
// is NaN or infinite.
DecoderFile ReadDecoderFile(const std::string& path);

}  // namespace kvcheck

#endif  // GOLDEN_DECODER_FILE_H_
