// A child of the process protocol that is honest (the model of caches) up to one request, and then
// misbehaves in the way that its argument names.
//
//   hostile_child KIND [FILE]    FILE: of kinds that behave once and misbehave from then on, or
//   that
//                                tell and are told by files whose names begin so

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/cache/model_cache.h"
#include "tests/tools/process/child_time.h"
#include "tools/process/message_frame.h"
#include "tools/process/serve_cache.h"

namespace kvcheck {
namespace {

using Bytes = std::vector<std::byte>;

bool ReadWhole(std::byte* to, size_t size) {
  while (size > 0) {
    const ssize_t got = read(0, to, size);
    if (got <= 0) return false;
    to += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

void WriteWhole(std::span<const std::byte> bytes, size_t piece = size_t{1} << 30) {
  while (!bytes.empty()) {
    const ssize_t written = write(1, bytes.data(), std::min(piece, bytes.size()));
    if (written <= 0) _exit(0);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void WriteHeader(uint64_t length) { WriteWhole(EncodeFrameHeader(length)); }

void WriteText(std::string_view text) {
  WriteWhole(std::as_bytes(std::span(text.data(), text.size())));
}

// A frame of these bytes.
void WriteFrame(std::string_view payload) {
  WriteHeader(payload.size());
  WriteText(payload);
}

void MakeFile(const std::string& path) {
  const int file = open(path.c_str(), O_CREAT | O_WRONLY, 0600);
  if (file < 0) _exit(99);
  close(file);
}

// The time that a test may have given its children; where it has given none, nothing passes.
void Pass(std::chrono::minutes time, const std::function<void()>& sign) {
  ChildTime* const said = ChildTime::FromEnvironment();
  if (said != nullptr) return said->Pass(time, sign);
  usleep(5'000);
  sign();
}

void GiveSign() { WriteHeader(0); }

// Gives signs of progress until FILE.silent is there, is silent from then on, and goes on when
// FILE.answer is there. Says with FILE.begun and FILE.is_silent how far it is.
void WaitForFiles(const std::string& file) {
  const auto exists = [&](const char* end) { return access((file + end).c_str(), F_OK) == 0; };
  MakeFile(file + ".begun");
  while (!exists(".silent")) {
    GiveSign();
    usleep(5'000);
  }
  MakeFile(file + ".is_silent");
  while (!exists(".answer")) usleep(5'000);
}

[[noreturn]] void Hang() {
  if (ChildTime* const said = ChildTime::FromEnvironment()) said->Hang();
  while (true) pause();
}

// What a state says, changed by one who knows how it begins.
using Edit = std::function<void(WireWriter&)>;

// An answer with one state of one row without tokens, of the setup hkv=1 dk=dv=8 x=f32; fields of
// `edit` come first, and the first of two counts.
void WriteStateAnswer(const Edit& edit) {
  WireWriter writer;
  writer.StartFrame();
  writer.StartMap();
  writer.Key("states");
  writer.StartArray(1);
  writer.StartMap();
  if (edit) edit(writer);
  const int64_t extents[] = {1, 1, 2, 8};
  for (const char* part : {"k", "v"}) {
    writer.Key(part);
    writer.StartArray(1);
    writer.Array(DType::kFloat32, extents);
  }
  for (const char* number : {"rows", "queries"}) {
    writer.Key(number);
    writer.Integer(1);
  }
  writer.EndMap();
  writer.EndMap();
  WriteWhole(writer.FinishFrame());
}

void Raw(WireWriter& writer, std::string_view key, std::string_view type,
         std::vector<int64_t> extents, size_t bytes) {
  writer.Key(key);
  writer.StartArray(1);
  writer.StartArray(3);
  writer.Text(type);
  writer.Integers(extents);
  writer.Bytes(Bytes(bytes));
}

void Mask(WireWriter& writer, std::string_view key, std::vector<int64_t> extents, size_t bytes,
          std::byte value) {
  writer.Key(key);
  writer.StartArray(3);
  writer.Text("b8");
  writer.Integers(extents);
  writer.Bytes(Bytes(bytes, value));
}

// States that break the protocol, or do not.
const std::map<std::string, Edit, std::less<>>& States() {
  static const std::map<std::string, Edit, std::less<>> states = {
      {"honest_state", {}},
      {"negative_rows", [](WireWriter& w) { w.Key("rows"), w.Integer(-1); }},
      {"text_for_rows", [](WireWriter& w) { w.Key("rows"), w.Text("1"); }},
      {"other_rows", [](WireWriter& w) { w.Key("rows"), w.Integer(2); }},
      {"negative_extent", [](WireWriter& w) { Raw(w, "k", "f32", {1, 1, -2, 8}, 64); }},
      {"extents_overflow",
       [](WireWriter& w) { Raw(w, "k", "f32", {int64_t{1} << 62, int64_t{1} << 62, 4, 8}, 64); }},
      {"extents_wrap_to_bytes",
       [](WireWriter& w) { Raw(w, "k", "f32", {(int64_t{1} << 60) + 1, 1, 2, 8}, 64); }},
      {"empty_and_endless",
       [](WireWriter& w) { Raw(w, "k", "f32", {int64_t{1} << 62, 1, 0, int64_t{1} << 62}, 0); }},
      {"bytes_do_not_fit", [](WireWriter& w) { Raw(w, "k", "f32", {1, 1, 2, 8}, 63); }},
      {"unknown_type", [](WireWriter& w) { Raw(w, "k", "f33", {1, 1, 2, 8}, 64); }},
      {"other_type", [](WireWriter& w) { Raw(w, "k", "f16", {1, 1, 4, 8}, 64); }},
      {"other_columns", [](WireWriter& w) { Raw(w, "k", "f32", {1, 1, 1, 8}, 32); }},
      {"too_many_axes", [](WireWriter& w) { Raw(w, "k", "f32", {1, 1, 1, 1, 1, 1, 1, 2, 8}, 64); }},
      {"no_axes", [](WireWriter& w) { Raw(w, "k", "f32", {}, 4); }},
      {"mask_value", [](WireWriter& w) { Mask(w, "retained", {1, 2}, 2, std::byte{2}); }},
      {"mask_shape", [](WireWriter& w) { Mask(w, "retained", {2, 1}, 2, std::byte{1}); }},
      {"mask_queries", [](WireWriter& w) { Mask(w, "visible", {1, 2, 2}, 4, std::byte{1}); }},
      {"size_not_a_number", [](WireWriter& w) { w.Key("size"), w.Float(__builtin_nan("")); }},
      {"negative_size", [](WireWriter& w) { w.Key("size"), w.Integer(-5); }},
      {"size_beyond_integers", [](WireWriter& w) { w.Key("size"), w.Unsigned(~uint64_t{0}); }},
      {"offsets_of_two",
       [](WireWriter& w) { w.Key("offsets"), w.Integers(std::vector<int64_t>{1, 1}); }},
      {"offset_below_0",
       [](WireWriter& w) { w.Key("offsets"), w.Integers(std::vector<int64_t>{-1}); }},
      {"empty_is_1", [](WireWriter& w) { w.Key("empty"), w.Integer(1); }},
      {"unknown_layout", [](WireWriter& w) { w.Key("layout"), w.Text("spiral:w=3"); }},
      {"unknown_format", [](WireWriter& w) { w.Key("k_format"), w.Text("q4_0"); }},
      {"affine_without_scales",
       [](WireWriter& w) { w.Key("k_format"), w.Text("affine:4:g32:f32"); }},
      {"no_columns",
       [](WireWriter& w) {
         Raw(w, "k", "f32", {1, 1, 0, 8}, 0);
         Raw(w, "v", "f32", {1, 1, 0, 8}, 0);
         Mask(w, "retained", {1, 0}, 0, std::byte{0});
       }},
      {"no_array", [](WireWriter& w) { w.Key("k"), w.Text("none"); }},
  };
  return states;
}

using Misbehave = void (*)();

// Answers that are none; what returns has answered.
const std::map<std::string, Misbehave, std::less<>>& Answers() {
  static const std::map<std::string, Misbehave, std::less<>> answers = {
      {"exit_0", [] { _exit(0); }},
      {"exit_3",
       [] {
         std::fprintf(stderr, "a line\nno such device \xff\x01\n");
         _exit(3);
       }},
      {"signal", [] { raise(SIGKILL); }},
      {"exit_within_frame",
       [] {
         WriteHeader(100);
         WriteText("0123456789");
         _exit(0);
       }},
      {"exit_within_header",
       [] {
         WriteText("\x01\x02\x03");
         _exit(0);
       }},
      {"exit_3_within_frame",
       [] {
         WriteHeader(100);
         WriteText("0123456789");
         _exit(3);
       }},
      {"grandchild_keeps_pipes",
       [] {
         if (fork() == 0) Hang();
         _exit(3);
       }},
      {"flood_and_exit",
       [] {
         for (int i = 0; i < 20'000; ++i) std::fprintf(stderr, "line %d of a flood of lines\n", i);
         _exit(5);
       }},
      {"failed",
       [] {
         WriteFrame(
             "\x81\xa6"
             "failed\xaeKeyError: 'B1'");
       }},
      {"hang", [] { Hang(); }},
      {"half_header",
       [] {
         WriteText("\x01\x02\x03");
         Hang();
       }},
      {"half_frame",
       [] {
         WriteHeader(100);
         WriteText("0123456789");
         Hang();
       }},
      {"endless_progress",
       [] {
         while (true) Pass(std::chrono::minutes(50), GiveSign);
       }},
      {"flood_of_progress",
       [] {
         const Bytes zeros(65536);
         while (true) Pass(std::chrono::minutes(50), [&] { WriteWhole(zeros); });
       }},
      {"garbage_length", [] { WriteText("\x9c\xf1\x02\xee\x71\x82\x93\x14"); }},
      {"length_2_to_63", [] { WriteHeader(uint64_t{1} << 63); }},
      {"length_beyond_limit", [] { WriteHeader((uint64_t{64} << 20) + 1); }},
      {"prints_text",
       [] {
         WriteText("Fetching 5 files: 100%\n");
         WriteFrame("\x80");
       }},
      {"no_messagepack", [] { WriteFrame("\xc1"); }},
      {"no_map", [] { WriteFrame("\x93\x01\x02\x03"); }},
      {"ends_early", [] { WriteFrame("\x82\xa1k\x01\xa1"); }},
      {"bytes_behind", [] { WriteFrame(std::string_view("\x80\x80\x80", 3)); }},
      {"key_no_text", [] { WriteFrame("\x81\x01\x02"); }},
      {"deep", [] { WriteFrame("\x81\xa1k" + std::string(1'000'000, '\x91') + "\x01"); }},
      {"many_values",
       [] {
         WriteFrame(std::string("\x81\xa1k\xdd\x00\x20\x00\x00", 8) + std::string(1 << 21, '\x01'));
       }},
      {"announces_4_billion", [] { WriteFrame("\x81\xa1k\xdd\xff\xff\xff\xff"); }},
      {"text_of_4_billion",
       [] {
         WriteFrame(
             "\x81\xa1k\xdb\xff\xff\xff\xff"
             "abc");
       }},
      {"two_answers",
       [] {
         // At once, so that both are there when the first is read.
         std::string both;
         for (int i = 0; i < 2; ++i) both += std::string("\x01\x00\x00\x00\x00\x00\x00\x00\x80", 9);
         WriteText(both);
       }},
      {"no_states", [] { WriteFrame("\x80"); }},
      {"states_no_array", [] { WriteFrame("\x81\xa6states\x05"); }},
      {"states_of_nobody", [] { WriteFrame("\x81\xa6states\x90"); }},
      {"state_nil", [] { WriteFrame("\x81\xa6states\x91\xc0"); }},
      {"state_no_map", [] { WriteFrame("\x81\xa6states\x91\x07"); }},
      {"misfit_of_mask",
       [] {
         WriteFrame(
             "\x82\xa7refused\xa3"
             "odd\xa6misfit\xa4mask");
       }},
      {"misfit_of_values",
       [] {
         WriteFrame(
             "\x82\xa7refused\xa3"
             "odd\xa6misfit\xa7k and v");
       }},
      {"misfit_of_nothing",
       [] {
         WriteFrame(
             "\x82\xa7refused\xa3"
             "odd\xa6misfit\xa4moon");
       }},
      {"refuses_in_words_of_a_mask", [] { WriteFrame("\x81\xa7refused\xb0the mask covers "); }},
      {"refused_no_text", [] { WriteFrame("\x81\xa7refused\x05"); }},
  };
  return answers;
}

// Greetings; "" of an unknown kind.
std::string GreetingOf(std::string_view kind, const char* file) {
  WireWriter writer;
  writer.StartFrame();
  writer.StartMap();
  const auto integer = [&](std::string_view key, int64_t value) {
    writer.Key(key);
    writer.Integer(value);
  };
  const auto text = [&](std::string_view key, std::string_view value) {
    writer.Key(key);
    writer.Text(value);
  };
  const auto kinds = [&](std::string_view name) {
    writer.Key("kinds");
    writer.StartArray(1);
    writer.Text(name);
  };
  std::string name = "hostile";
  if (kind == "hello_changes" && file != nullptr) {
    if (access(file, F_OK) == 0) name = "another";
    MakeFile(file);
  }
  integer("protocol", kind == "hello_version" ? 2 : 1);
  if (kind == "hello_without_name") name.clear();
  if (!name.empty()) text("name", name);
  text("version", "1");
  kind == "hello_kinds" ? integer("kinds", 7)
                        : kinds(kind == "hello_unknown_kind" ? "moon" : "cache");
  if (kind == "hello_plan") text("plan", "base=nobody");
  if (kind == "hello_profile") text("cache_profile", "size=green");
  if (kind == "hello_space") {
    writer.Key("spaces");
    writer.StartArray(1);
    writer.StartMap();
    text("kind", "cache");
    writer.Key("operations");
    writer.StartArray(1);
    writer.Text("fly");
    writer.EndMap();
  }
  writer.EndMap();
  const std::span<const std::byte> frame = writer.FinishFrame();
  return {reinterpret_cast<const char*>(frame.data()), frame.size()};
}

int Run(std::string_view kind, const char* file) {
  signal(SIGPIPE, SIG_IGN);
  ModelFactory model;
  CacheServer caches(&model);
  WireMessage message;
  // in_KIND misbehaves in the first request after the greeting, under whatever limit; at_N:KIND in
  // the append N, 1 to 9; others in the first append.
  const bool at_once = kind.starts_with("in_start:");
  const bool at_hello = kind.starts_with("in_hello:");
  int appends_before = 0;
  if (at_once || at_hello) kind.remove_prefix(9);
  if (kind.starts_with("at_")) {
    appends_before = kind[3] - '1';
    kind.remove_prefix(5);
  }
  std::vector<Bytes> unanswered;
  while (true) {
    FrameHeader header;
    if (!ReadWhole(header.data(), header.size())) return 0;
    Bytes frame(DecodeFrameHeader(header));
    if (!ReadWhole(frame.data(), frame.size())) return 0;
    const WireValue request = message.Read(frame);
    const std::string_view name = request.Get("do").AsText("'do'");
    if (name == "hello" && !at_hello) {
      if (kind == "closes_input") close(0);
      // In steps that are shorter than a limit of an hour, and together longer.
      for (int i = 0; kind == "greets_late" && i < 3; ++i) {
        Pass(std::chrono::minutes(40), GiveSign);
      }
      WriteText(GreetingOf(kind, file));
      if (kind == "closes_input") Hang();
      if (kind == "never_reads") Answers().at("endless_progress")();
      continue;
    }
    const bool is_append = name == "append" && appends_before-- == 0;
    if (kind == "answers_again") {
      WriteFrame("\x80");
      usleep(50'000);
      WriteFrame("\x80");
      if (file != nullptr) MakeFile(file);
      continue;
    }
    if (kind == "waits" && is_append && file != nullptr) WaitForFiles(file);
    const bool here = at_hello || (at_once ? name == "start" : is_append);
    if (here) {
      const auto answer = Answers().find(kind);
      if (answer != Answers().end()) {
        answer->second();
        continue;
      }
      const auto state = States().find(kind);
      if (state != States().end()) {
        WriteStateAnswer(state->second);
        continue;
      }
      if (kind == "flood_of_lines") {
        for (int i = 0; i < 20'000; ++i) std::fprintf(stderr, "line %d of a flood of lines\n", i);
      }
    }
    WireWriter writer;
    writer.StartFrame();
    writer.StartMap();
    if (here && kind == "long_answer") {
      writer.Key("nobody asked");
      writer.Bytes(Bytes(size_t{60} << 20));
    }
    // Not carried out; the states that were asked for are shown.
    const bool declines =
        (here && kind == "declines_append") || (name == "copy" && kind == "declines_copy");
    const bool refuses = name == "trim" && kind == "refuses_trim";
    if (declines || refuses) {
      writer.Key(declines ? "unsupported" : "refused");
      writer.Text("no");
    }
    try {
      if (!caches.Answer(declines || refuses ? "observe" : name, request, writer)) return 9;
    } catch (const WireError&) {
      // A cache that was not made, named by a request that was sent ahead.
      WriteFrame(
          "\x81\xa6"
          "failed\xa8no cache");
      continue;
    }
    writer.EndMap();
    const std::span<const std::byte> answer = writer.FinishFrame();
    if (kind == "answers_four_at_a_time" && name != "hello") {
      unanswered.emplace_back(answer.begin(), answer.end());
      if (unanswered.size() < 4) {
        // Where the test counts time: it is silent for ever.
        if (ChildTime* const said = ChildTime::FromEnvironment()) said->Hang();
        continue;
      }
      for (const Bytes& each : std::exchange(unanswered, {})) WriteWhole(each);
      continue;
    }
    WriteWhole(answer, here && kind == "in_pieces" ? 1 : size_t{1} << 30);
  }
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  if (argc < 2) return 8;
  return kvcheck::Run(argv[1], argc > 2 ? argv[2] : nullptr);
}
