# For builds of RocksDB from source: copy or link this folder to plugin/persimmon there, then
#   ROCKSDB_PLUGINS=persimmon make db_bench
persimmon_SOURCES = uri.cc names.cc volume.cc files.cc logger.cc filesystem.cc register.cc
persimmon_HEADERS = filesystem.h persimmon_rocksdb.h
persimmon_CXXFLAGS = $(shell pkg-config --cflags persimmon)
persimmon_LDFLAGS = $(shell pkg-config --libs persimmon) -u persimmon_rocksdb_plugin
persimmon_PKGCONFIG_REQUIRES = persimmon
