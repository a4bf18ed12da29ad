// Files that people have, as compare takes them: numpy's, raw elements, folders with links, codes
// in fp8, words of MLX, packed sequences; and the sentences that say what to do about the others.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/golden/golden_samples.h"
#include "tests/tools/kvcheck/stored_files.h"

namespace kvcheck {
namespace {

using golden_samples::ReadBytes;
using golden_samples::WriteBytes;

std::string BytesOf(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
}

std::string Npy(const std::string& type, const std::string& shape, const std::string& data) {
  const std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + ")}\n";
  return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(header.size()) + '\0' + header + data;
}

// Safetensors of these tensors: name, type, shape as JSON, bytes.
struct Stored {
  std::string name, type, shape, bytes;
};
std::string Safetensors(const std::vector<Stored>& tensors) {
  std::string header = "{";
  std::string data;
  for (const Stored& t : tensors) {
    header += (header.size() > 1 ? ",\"" : "\"") + t.name + "\":{\"dtype\":\"" + t.type +
              "\",\"shape\":[" + t.shape + "],\"data_offsets\":[" + std::to_string(data.size()) +
              "," + std::to_string(data.size() + t.bytes.size()) + "]}";
    data += t.bytes;
  }
  return golden_samples::SafetensorsBytes(header + "}", data);
}

class FilesThatPeopleHave : public CompareStored {
 protected:
  void WriteFile(const std::string& name, const std::string& bytes) const {
    WriteBytes(Path(name), bytes);
  }
  ToolRun Of(std::vector<std::string> words) const {
    words.insert(words.begin(), "compare");
    return Tool(words);
  }
};

void ExpectText(const ToolRun& run, int exit_code, const std::string& text) {
  EXPECT_EQ(run.exit_code, exit_code) << run.out << run.err;
  EXPECT_NE((run.out + run.err).find(text), std::string::npos) << run.out << run.err;
}

TEST_F(FilesThatPeopleHave, ArraysOfNumpyAreTensors) {
  const std::string right = BytesOf(Counting(Shape::Unnamed({2, 3}), 1));
  const std::string wrong = BytesOf(Counting(Shape::Unnamed({2, 3}), 2));
  WriteFile("right.npy", Npy("<f4", "2, 3", right));
  WriteFile("again.npy", Npy("<f4", "2, 3", right));
  WriteFile("wrong.npy", Npy("<f4", "2, 3", wrong));
  WriteFile("right.safetensors", Safetensors({{"x", "F32", "2,3", right}}));
  WriteFile("raw.bin", right);
  // Of files with one tensor the names are the files' own, and are not compared.
  ExpectText(Of({"right.npy", "again.npy"}), 0, "1 tensor: 1 passed");
  ExpectText(Of({"right.npy", "wrong.npy"}), 1, "FAIL  /right");
  ExpectText(Of({"right.npy", "wrong.npy", "--tol", "abs:1"}), 3, "MISTRUSTED");
  ExpectText(Of({"right.safetensors", "again.npy"}), 0, "1 passed");
  ExpectText(Of({"right.npy", "raw.bin:f32:2x3"}), 0, "1 passed");
  ExpectText(Of({"right.npy", "raw.bin:f32:3x2"}), 1, "has shape 3x2, 2x3 expected");
  ExpectText(Of({"right.npy", "raw.bin:f32:2x2"}), 2, "it has 24 bytes");
  ExpectText(Of({"right.npy", "raw.bin"}), 2, "raw.bin:bf16:2x8x128x64");
  const std::string npz = std::string(KVCHECK_SOURCE_DIR) + "/tests/golden/fixture_numpy.npz";
  std::filesystem::copy_file(npz, Path("copy.npz"));
  ExpectText(Of({npz, "copy.npz", "--include", "little*", "--include", "b1"}), 0, "12 passed");
  ExpectText(Of({npz, "copy.npz", "--include", "objects"}), 3, "reading it would run code");
  ExpectText(Of({npz, "copy.npz", "--include", "bf16"}), 3, "as in FILE:bf16");
  ExpectText(Of({npz + ":bf16", "copy.npz:bf16", "--include", "bf16"}), 0, "1 passed");
  // A file beside itself proves nothing, whatever its name.
  std::filesystem::create_hard_link(Path("right.npy"), Path("linked.npy"));
  ExpectText(Of({"right.npy", "linked.npy"}), 3, "compared with itself");
  ExpectText(Of({"raw.bin:f32:2x3", "raw.bin:f32:2x3"}), 3, "compared with itself");
  // Nothing of a pickle runs, and its refusal names the command that converts it.
  WriteFile("model.pt", "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.");
  ExpectText(Of({"right.npy", "model.pt"}), 2, "kvcheck convert model.pt model.safetensors");
  WriteFile("objects.npy", Npy("|O", "2,", "\x80\x04."));
  ExpectText(Of({"right.npy", "objects.npy"}), 2, "reading it would run code");
  ExpectText(Tool({"convert", "a.pt", "b.safetensors"}), 2, "a command of the Python package");
}

TEST_F(FilesThatPeopleHave, ACaseIsAnsweredByAFolderOfArrays) {
  const std::string c = "attention hq=1 hkv=1 l=2 t=2 d=4 q=f32 k=f32 v=f32 out=f32 data=file";
  std::filesystem::create_directory(Path("dump"));
  const auto write = [&](const char* name, const std::vector<double>& values) {
    const Tensor tensor = Values(DType::kFloat32, Shape::Unnamed({2, 4}), values);
    WriteFile(std::string("dump/") + name + ".npy", Npy("<f4", "2, 4", BytesOf(tensor)));
  };
  // Queries whose channels sum to 0, over keys that differ by 4 everywhere: equal scores, so that
  // the answer is the mean of the values, exactly.
  write("q", {1, 1, -1, -1, -1, 1, 1, -1});
  write("k", {1, 2, 3, 4, 5, 6, 7, 8});
  write("v", {1, 2, 3, 4, 3, 6, 5, 8});
  write("out", {2, 4, 4, 6, 2, 4, 4, 6});
  ExpectText(Of({"dump", "--case", c, "--plan", "base=plain_f32"}), 0, "1 case: 1 passed");
  write("out", {2, 4, 4, 6, 2, 4, 5, 6});
  ExpectText(Of({"dump", "--case", c, "--plan", "base=plain_f32"}), 1, "got 5");
}

TEST_F(FilesThatPeopleHave, LinksOfShardsAreOneFile) {
  const std::string tensor = Safetensors({{"x", "U8", "2", "ab"}});
  for (const char* folder : {"blobs", "s1", "s2", "s3"}) {
    std::filesystem::create_directory(Path(folder));
  }
  WriteFile("blobs/x", tensor);
  std::filesystem::create_symlink("../blobs/x", Path("s1/model.safetensors"));
  std::filesystem::create_symlink("../blobs/x", Path("s2/model.safetensors"));
  std::filesystem::create_hard_link(Path("blobs/x"), Path("s3/model.safetensors"));
  const std::string itself = "compared with itself: GOLD and GOT are one file";
  ExpectText(Of({"s1", "s2"}), 3, itself);
  ExpectText(Of({"s1", "s3"}), 3, itself);
  ExpectText(Of({"blobs/x", "s1"}), 3, itself);
  ExpectText(Of({"s3", "blobs/x"}), 3, itself);
  // A copy is another file; of two shards the one that is linked is named.
  std::filesystem::create_directory(Path("s4"));
  WriteFile("s4/model.safetensors", tensor);
  ExpectText(Of({"s1", "s4"}), 0, "1 passed");
  WriteFile("s4/more.safetensors", Safetensors({{"y", "U8", "1", "c"}}));
  std::filesystem::create_hard_link(Path("s4/more.safetensors"), Path("s1/more.safetensors"));
  const ToolRun both = Of({"s1", "s4"});
  EXPECT_EQ(both.exit_code, 3) << both.out;
  ExpectText(both, 3, "1 passed, 1 mistrusted");
}

TEST_F(FilesThatPeopleHave, WhatAnIndexDoesNotNameIsSaid) {
  for (const char* folder : {"a", "b"}) {
    std::filesystem::create_directory(Path(folder));
    const std::string name = folder;
    WriteFile(name + "/model.safetensors", Safetensors({{"x", "U8", "1", "a"}}));
    WriteFile(name + "/extra.safetensors", Safetensors({{"y", "U8", "1", name}}));
    WriteFile(name + "/model.safetensors.index.json",
              R"({"weight_map":{"x":"model.safetensors"}})");
  }
  const ToolRun run = Of({"a", "b"});
  ExpectText(run, 0, "not looked at in a, whose index does not name it: extra.safetensors");
  ExpectText(run, 0, "not looked at in b, whose index does not name it: extra.safetensors");
  WriteFile("a/model.safetensors.index.json",
            R"({"weight_map":{"x":"extra.safetensors","x":"model.safetensors"}})");
  ExpectText(Of({"a", "b"}), 2, "has the key 'x' twice");
}

// What a code of e4m3 and of e2m1 means.
double OfE4m3(int code) {
  const double size = std::ldexp(1 + code % 8 / 8.0, code / 8 % 16 - 7);
  return code >= 128 ? -size : size;
}
double OfE2m1(int code) {
  constexpr double kSizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code >= 8 ? -kSizes[code % 8] : kSizes[code % 8];
}

// Codes of mxfp8 as PyTorch stores them, and of mxfp4 as MLX's quantize returns them. All codes of
// a row differ, so that one in place of another shows.
TEST_F(FilesThatPeopleHave, CodesMayBeStoredAsFp8AndAsWordsOfMlx) {
  const auto row = [](const std::vector<double>& values) {
    return BytesOf(Values(DType::kFloat32, Shape::Unnamed({1, 32}), values));
  };
  std::string codes;  // of normal numbers up to 448, every second one negative
  std::vector<double> values;
  for (int i = 0; i < 32; ++i) {
    const int code = 0x40 + 2 * i + (i % 2 == 0 ? 0 : 0x80);
    codes.push_back(static_cast<char>(code));
    values.push_back(std::ldexp(OfE4m3(code), -8));
  }
  const std::string scale(1, static_cast<char>(127 - 8));
  WriteFile("gold.safetensors", Safetensors({{"k", "F32", "1,32", row(values)}}));
  const std::vector<std::string> rule = {"gold.safetensors", "got.safetensors", "--tol",
                                         "codec:mxfp8:e4m3:f32"};
  const auto write = [&](const std::string& type, const std::string& scales,
                         const std::string& bytes) {
    WriteFile("got.safetensors",
              Safetensors({{"k_codes", type, "1,32", bytes}, {"k_scales", scales, "1,1", scale}}));
  };
  std::string wrong = codes;
  wrong[5] = codes[7];
  for (const auto& [type, scales] :
       std::vector<std::pair<std::string, std::string>>{{"U8", "U8"}, {"F8_E4M3", "F8_E8M0"}}) {
    write(type, scales, codes);
    ExpectText(Of(rule), 0, "1 passed");
    write(type, scales, wrong);
    ExpectText(Of(rule), 1, "1 failed");
  }
  std::string fp4;
  values.clear();
  for (int i = 0; i < 32; ++i) {
    // Every code but -0, which no encoder writes.
    const int code = i * 7 % 16 == 8 ? 9 : i * 7 % 16;
    values.push_back(OfE2m1(code) / 4);
    if (i % 2 == 0) {
      fp4.push_back(static_cast<char>(code));
    } else {
      fp4.back() = static_cast<char>(fp4.back() | code << 4);
    }
  }
  const std::string quarter(1, static_cast<char>(127 - 2));
  WriteFile("gold.safetensors", Safetensors({{"k", "F32", "1,32", row(values)}}));
  WriteFile("got.safetensors",
            Safetensors({{"k_codes", "U32", "1,4", fp4}, {"k_scales", "U8", "1,1", quarter}}));
  std::vector<std::string> words = {"gold.safetensors", "got.safetensors", "--tol",
                                    "codec:mxfp4:f32"};
  ExpectText(Of(words), 1, "these are MLX's words of four bytes: read them so with --cast u8");
  words.insert(words.end(), {"--cast", "u8"});
  ExpectText(Of(words), 0, "1 passed");
  const std::string c = "codec op=decode format=mxfp4:f32 x=f32 rows=1 d=32 data=file";
  WriteFile("rows.safetensors", Safetensors({{"codes", "U32", "1,4", fp4},
                                             {"scales", "U8", "1,1", quarter},
                                             {"y", "F32", "1,32", row(values)}}));
  ExpectText(Of({"rows.safetensors", "--case", c}), 2,
             "'codes' is stored as uint32 of shape 1x4: codes are bytes, 16 a row; these are MLX's "
             "words of four bytes: read them so with --cast u8");
  ExpectText(Of({"rows.safetensors", "--case", c, "--cast", "u8"}), 0, "1 passed");
}

TEST_F(FilesThatPeopleHave, PackedSequencesAreRefusedByName) {
  const std::string c = "attention hq=1 hkv=1 l=4 t=4 d=4 q=f32 k=f32 v=f32 out=f32 data=file";
  const std::string x = BytesOf(Counting(Shape::Unnamed({4, 4}), 1));
  const auto starts = [](std::vector<double> values) {
    return BytesOf(
        Values(DType::kInt32, Shape::Unnamed({static_cast<int64_t>(values.size())}), values));
  };
  std::vector<Stored> tensors = {{"k", "F32", "4,4", x},
                                 {"out", "F32", "4,4", x},
                                 {"q", "F32", "4,4", x},
                                 {"v", "F32", "4,4", x},
                                 {"cu_seqlens_q", "I32", "3", starts({0, 1, 3})}};
  WriteFile("packed.safetensors", Safetensors(tensors));
  const ToolRun packed = Of({"packed.safetensors", "--case", c});
  ExpectText(
      packed, 2,
      "/cu_seqlens_q says that its tokens are 2 sequences, packed one behind the other: each "
      "attends to itself only");
  tensors.push_back({"cu_seqlens_q_padded", "I32", "3", starts({0, 2, 4})});
  WriteFile("padded.safetensors", Safetensors(tensors));
  ExpectText(Of({"padded.safetensors", "--case", c}), 2,
             "with padding between them: each attends to itself only");
  ExpectText(Of({"padded.safetensors", "--case", c}), 2, "cu_seqlens_q_padded=...");
  // One sequence of all tokens is the case.
  tensors.resize(4);
  tensors.push_back({"cu_seqlens_q", "I32", "2", starts({0, 4})});
  WriteFile("one.safetensors", Safetensors(tensors));
  EXPECT_EQ(Of({"one.safetensors", "--case", c}).exit_code, 1);
}

TEST_F(FilesThatPeopleHave, OnlyGroupsThatMapNamesAreWarnedOf) {
  const Tensor half = Values(DType::kFloat32, Shape::Unnamed({2, 4}), std::vector<double>(8, 0.5));
  TensorMap tensors;
  for (const char* group : {"/a", "/b"}) {
    for (const char* name : {"/q", "/k", "/v", "/out"}) tensors[std::string(group) + name] = half;
    tensors[std::string(group) + "/lse"] = Values(DType::kFloat32, Shape::Unnamed({2}), {1, 1});
  }
  Write("dump.h5", tensors);
  const std::string c = "attention hq=1 hkv=1 l=2 t=2 d=4 q=f32 k=f32 v=f32 out=f32 data=file";
  const ToolRun run =
      Of({"dump.h5", "--case", c, "--map", "q=/a/q,k=/a/k,v=/a/v,out=/a/out", "-v"});
  ExpectText(run, run.exit_code, "/a/lse was not judged: the case asks for no 'lse'");
  EXPECT_EQ(run.out.find("/b/lse was not judged"), std::string::npos) << run.out;
  ExpectText(run, run.exit_code, "not looked at in dump.h5: /b/");
}

TEST_F(FilesThatPeopleHave, MessagesSayWhatWouldHelp) {
  const std::string x = BytesOf(Counting(Shape::Unnamed({2, 32}), 1));
  // The rows of affine:4:g32:f16 are f16, whatever x is.
  WriteFile("rows.safetensors",
            Safetensors({{"x", "F32", "2,32", x}, {"y", "F64", "2,32", x + x}}));
  const std::string q8 = "codec op=round_trip format=affine:4:g32:f16 x=f32 rows=2 d=32 data=file";
  ExpectText(
      Of({"rows.safetensors", "--case", q8}), 2,
      "'y' of the format affine:4:g32:f16 is float16 (x=f32 is the type of the original rows)");
  // Every plane that is missing, in one message.
  WriteFile("none.safetensors", Safetensors({{"z", "F32", "2,32", x}}));
  const std::string decode = "codec op=decode format=affine:4:g32:f32 x=f32 rows=2 d=32 data=file";
  ExpectText(Of({"none.safetensors", "--case", decode}), 2,
             "'biases', 'codes', 'scales' of the case are not there; present: /z float32 2x32");
  // A mask that no order of axes makes right.
  const std::string attention =
      "attention hq=1 hkv=1 l=2 t=32 d=4 q=f32 k=f32 v=f32 out=f32 mask=bool:LT data=file";
  const std::string rows = BytesOf(Counting(Shape::Unnamed({32, 4}), 1));
  WriteFile("mask.safetensors", Safetensors({{"k", "F32", "32,4", rows},
                                             {"mask", "BOOL", "1,2,2", "\1\1\1\1"},
                                             {"out", "F32", "2,4", rows.substr(0, 32)},
                                             {"q", "F32", "2,4", rows.substr(0, 32)},
                                             {"v", "F32", "32,4", rows}}));
  const ToolRun mask = Of({"mask.safetensors", "--case", attention});
  ExpectText(mask, 2, "store the mask with an entry for every key that the case has");
  EXPECT_EQ(mask.out.find("--axes"), std::string::npos) << mask.out;
  // Pages.
  const std::string plain = "attention hq=1 hkv=1 l=2 t=30 d=4 q=f32 k=f32 v=f32 out=f32 data=file";
  WriteFile("pages.safetensors", Safetensors({{"block_table", "I32", "1,4", rows.substr(0, 16)},
                                              {"k", "F32", "4,8,1,4", rows},
                                              {"out", "F32", "2,4", rows.substr(0, 32)},
                                              {"q", "F32", "2,4", rows.substr(0, 32)},
                                              {"v", "F32", "4,8,1,4", rows}}));
  const ToolRun pages = Of({"pages.safetensors", "--case", plain});
  ExpectText(pages, 2, "lie in pages, which the Python package judges");
  EXPECT_EQ(pages.out.find("--axes"), std::string::npos) << pages.out;
  // Zeros of the other sign, and words in hexadecimal digits.
  Tensor zeros = Values(DType::kFloat32, Shape::Unnamed({32, 4}), std::vector<double>(128, 1));
  Tensor negative = zeros;
  for (int i = 0; i < 4; ++i) {
    zeros.As<float>()[i] = 0.0F;
    negative.As<float>()[i] = -0.0F;
  }
  const ToolRun signs = Compare({{"/x", zeros}}, {{"/x", negative}});
  ExpectText(signs, 1, "every element that fails is a zero of the other sign");
  EXPECT_EQ(signs.out.find("garbage"), std::string::npos) << signs.out;
  ExpectText(Compare({{"/x", Values(DType::kUInt32, Shape::Unnamed({1}), {2863311530.0})}},
                     {{"/x", Values(DType::kUInt32, Shape::Unnamed({1}), {2863311531.0})}}),
             1, "got 2863311531 (0xaaaaaaab), expected 2863311530 (0xaaaaaaaa)");
  // Formats that fit, where there are any.
  const auto refusal = [&](const std::string& format, int d) {
    return Tool({"run", "codec op=encode format=" + format +
                            " x=f32 rows=1 d=" + std::to_string(d) + " data=gauss:1"});
  };
  ExpectText(refusal("nvfp4:swizzled:bf16", 128), 2, "keep rows of 128 channels: nvfp4");
  ExpectText(refusal("nvfp4:swizzled:bf16", 128), 2, "give them as (heads, tokens / 4, 4 x 128)");
  ExpectText(refusal("turboquant:4:g80:bf16", 80), 2,
             "none divides 80, and rows of such a head_dim are not kept in this format");
  ExpectText(refusal("turboquant:4:g96:bf16", 96), 2, "for head_dim 96 write g32");
  ExpectText(refusal("turboquant:4:g64:bf16", 96), 2, "turboquant:4:g32:");
  ExpectText(refusal("q8_0", 40), 2, "no format of q8_0 keeps rows of 40 channels");
}

TEST_F(FilesThatPeopleHave, TitlesOfAnnotationsAreEscaped) {
  WriteFile("gold.safetensors", Safetensors({{"a\\u001b[31mred", "U8", "1", "a"}}));
  WriteFile("got.safetensors", Safetensors({{"a\\u001b[31mred", "U8", "1", "b"}}));
  const ToolRun run = Shell(
      "GITHUB_ACTIONS=true GITHUB_STEP_SUMMARY=summary.md "
      "\"$KVCHECK\" compare gold.safetensors got.safetensors --github");
  EXPECT_NE(run.out.find("::error title="), std::string::npos) << run.out << run.err;
  EXPECT_EQ((run.out + run.err).find('\x1b'), std::string::npos) << run.out;
}

}  // namespace
}  // namespace kvcheck
